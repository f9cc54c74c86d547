"""Intel GPUs for Pagemill: `pip install pagemill[sycl]`, then `pagemill serve --device sycl`."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("libpagemill_sycl.so")
