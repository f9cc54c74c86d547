"""One module per endpoint; `table` lists them."""
