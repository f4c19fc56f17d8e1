"""Active rules: what stands, when it fires, and what becomes of it."""
