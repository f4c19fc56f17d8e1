"""The functors of Datalog: their signatures and implementations."""
