"""The lake: Delta tables of base relations, stored views and their changes."""
