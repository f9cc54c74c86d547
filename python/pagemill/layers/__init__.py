"""Parts that models are assembled from: thin functions over `pagemill.ops` that bind weights."""
