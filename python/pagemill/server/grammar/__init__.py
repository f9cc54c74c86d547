"""Constraints of requests as grammars."""
