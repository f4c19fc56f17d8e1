"""Aggregates on Spark: counts, groups, folds, sums."""
