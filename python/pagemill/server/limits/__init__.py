"""Limits of API keys: how much of the server each may use at once and by the minute."""
