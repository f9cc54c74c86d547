"""Towers of vision models, and what they share."""
