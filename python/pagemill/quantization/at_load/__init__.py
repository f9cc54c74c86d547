"""Quantization of a checkpoint's matrices when a model is loaded."""
