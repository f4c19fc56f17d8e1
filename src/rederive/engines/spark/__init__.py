"""The Spark engine: the same maintenance programs as Spark SQL jobs, for relations beyond one process's memory."""
