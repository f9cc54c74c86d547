"""Tools that the server runs: a loop of generations and calls, and the servers that have tools."""
