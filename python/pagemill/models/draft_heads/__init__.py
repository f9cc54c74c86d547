"""Heads that draft tokens from the hidden states of the model that verifies them."""
