"""One file per strategy: each rewrites a view's rules into a maintenance program, which is again rules."""
