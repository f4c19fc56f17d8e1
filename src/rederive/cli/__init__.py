"""The command line: `main` lists the commands; each group of commands has one file."""
