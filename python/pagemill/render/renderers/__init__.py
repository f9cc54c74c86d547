"""How messages become a prompt, by the kind of model; `table` lists them."""
