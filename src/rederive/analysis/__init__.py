"""Facts about programs; nothing here rewrites one."""
