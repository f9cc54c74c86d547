"""Rows and scores of models that pool."""
