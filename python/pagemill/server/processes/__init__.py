"""Processes of a server: those that answer, those with engines, and the one that starts them."""
