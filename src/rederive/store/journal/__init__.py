"""The journal: one SQLite file that holds every committed version."""
