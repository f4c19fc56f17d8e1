"""The peers of the benchmarks: DuckDB, which computes a closure again, and two engines in Rust, which maintain it."""

from benchmarks.peers.closure_query import DuckDB, Pair

__all__ = ["DuckDB", "Pair"]
