"""The resident engine: relations and views in the memory of this process."""
