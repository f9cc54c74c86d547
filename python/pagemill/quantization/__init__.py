"""How checkpoints store matrices: one module per quantization method, found through `table`."""
