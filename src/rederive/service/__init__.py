"""The monitoring service. Nothing here but `http` knows of HTTP."""
