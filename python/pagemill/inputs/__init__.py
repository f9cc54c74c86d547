"""What rendering hands to the engine. Imports nothing of the tree, so that both may use it."""
