"""The net effect of a transaction on relations that Spark holds."""
