"""Fakes for tests of the router."""
