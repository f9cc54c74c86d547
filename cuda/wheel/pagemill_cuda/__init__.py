"""NVIDIA GPUs for Pagemill: `pip install pagemill[cuda]`, then `pagemill serve --device cuda`."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("libpagemill_cuda.so")
