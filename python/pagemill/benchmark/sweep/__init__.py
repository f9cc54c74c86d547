"""A grid of server options and loads, measured combination by combination."""
