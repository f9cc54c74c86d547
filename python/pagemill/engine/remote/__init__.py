"""Engines of a server that is on another machine: how they join it, and how clients reach them."""
