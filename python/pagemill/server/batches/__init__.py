"""Files that clients upload, and batches of requests that the server answers meanwhile."""
