"""Encoders of sound, and what they share."""
