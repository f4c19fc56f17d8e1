"""Transactions, versions and subscriptions: what turns an engine's findings into committed, announced changes."""
