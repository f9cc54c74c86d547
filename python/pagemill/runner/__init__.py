"""Builds programs from models on disk, and runs them in torch."""
