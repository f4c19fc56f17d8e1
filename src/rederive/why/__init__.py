"""Why a row is in a view, and why not: derivations, found by searching from the row; nothing is stored for it."""
