"""AMD GPUs for Pagemill: `pip install pagemill[hip]`, then `pagemill serve --device hip`."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("libpagemill_hip.so")
