"""A server over the fake engine, and its renderer; for tests only."""
