"""A vocabulary for tests of grammars; for tests only."""
