"""What the server tells about itself: Prometheus metrics, logs, a statistics line."""
