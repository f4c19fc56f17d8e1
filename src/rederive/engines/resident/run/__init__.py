"""Runs compiled maintenance programs: fixpoints, phases, aggregates, demand."""
