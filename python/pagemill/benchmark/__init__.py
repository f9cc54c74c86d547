"""Benchmarks of the engine and of servers; the commands of `pagemill bench` print them."""
