"""What `pagemill top` shows: figures of running servers, read from their metrics."""
