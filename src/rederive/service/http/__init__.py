"""The service over HTTP: the only importer of Starlette, uvicorn and the Prometheus client."""
