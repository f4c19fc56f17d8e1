"""From requested changes to a committed, announced version."""
