"""Each benchmark is one file with a `run` that yields sections of figures; `run.py` lists them and prints the report."""
