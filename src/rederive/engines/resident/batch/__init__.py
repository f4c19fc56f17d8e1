"""Rules and aggregates by whole columns: for changes of many rows, and for first evaluations."""
