"""Stored views over remote relations, maintained with as little reading of the sources as possible (HU97)."""
