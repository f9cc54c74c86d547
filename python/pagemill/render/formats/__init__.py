"""How families of models write reasoning and calls of tools: one file per format, `table.py`."""
