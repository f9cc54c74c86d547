"""JSON Schema to grammars that admit valid JSON only."""
