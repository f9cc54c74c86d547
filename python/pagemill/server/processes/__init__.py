"""Processes of a server: those that answer, those with engines, and who starts them."""
