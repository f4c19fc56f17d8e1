"""Active rules: what is defined, when it fires, and what its actions do."""
