"""Runs plans as Spark jobs, or in the driver where the rows are few."""
