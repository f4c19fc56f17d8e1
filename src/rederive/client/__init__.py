"""Clients of the service.

`requests` holds requests and answers as data, `sse` decodes event streams, `replica` is a copy of views that applies events,
`subscription_state` connects the two. `blocking` and `asynchronous` are the connections that users open.

A client depends on the wire format of `docs/service.md` and on httpx, and on nothing else of this package but errors.
"""
