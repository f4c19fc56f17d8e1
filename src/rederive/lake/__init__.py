"""Delta tables: base relations, materialised views and their changes. Spark is used here, in `pipeline` and `engines.spark`."""
