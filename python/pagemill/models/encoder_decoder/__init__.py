"""Encoders and decoders of text."""
