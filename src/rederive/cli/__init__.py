"""The command line. `main` is the entry; one file per command."""
