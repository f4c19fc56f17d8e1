"""The journal: one SQLite file that holds every committed version. `file` opens it, `reader` reads it, `writer` commits to it."""
