"""From the outside to typed rows: initial rows in `files`, transactions in `changes`."""
