"""The scalar functions of SQL: their signatures and implementations."""
