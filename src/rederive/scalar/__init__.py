"""Functions of terms, which both engines evaluate.

`datalog` has the functors of Datalog, `sql` the scalar functions of SQL. Each has a table `signatures` (name, arguments, what it
does with NULL, whether it can fail) and a table `implementations` (what it computes on values of Python); the names of both are
the same. The Spark engine adds an expression of Spark for each name (engines/spark/plan). `failures` is how a function fails,
`regex` how both languages match patterns.
"""
