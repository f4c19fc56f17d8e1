"""Rules become relational plans, printed as Spark SQL."""
