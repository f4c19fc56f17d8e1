"""Clients of the monitoring service: what is said over the wire (`wire`, `calls`), a copy of views that follows it (`copy`), and
the connections that carry both, blocking (`connection`) and asynchronous (`asynchronous`).

Nothing here knows the database: a client has the addresses, the events and the stable codes of `docs/service.md`, and httpx.
"""
