"""Stand-ins for the native engine, and what every engine client must do; for tests only."""
