"""Spark sessions, and values in Spark's types."""
