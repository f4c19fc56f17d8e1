"""Facts about programs; no analysis rewrites one."""
