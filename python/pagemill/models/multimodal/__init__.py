"""Models of text with images, videos or sound."""
