"""`pagemill serve-models`: models that are loaded when they are named. docs/several_models.md."""
