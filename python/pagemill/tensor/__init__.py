"""Element types. Imports nothing of the tree, so that what reads files needs no ops."""
