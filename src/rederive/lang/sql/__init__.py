"""Spark SQL: text to rules. The only importer of sqlglot."""
