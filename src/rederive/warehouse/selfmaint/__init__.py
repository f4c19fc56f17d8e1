"""Self-maintenance (HU97): stored views kept up to date from themselves and the transaction, reading sources where needed."""
