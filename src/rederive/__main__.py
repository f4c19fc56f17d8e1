"""`python -m rederive` is the command line."""

from rederive.cli.main import main

if __name__ == "__main__":
    main()
