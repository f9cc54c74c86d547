"""How families of models are asked for what is said in audio."""
