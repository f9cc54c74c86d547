"""Observability of the server: Prometheus metrics, logs, a statistics line."""
