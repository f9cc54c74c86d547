"""Fakes for tests of the host of models."""
