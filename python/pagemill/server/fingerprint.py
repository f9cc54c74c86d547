"""What a server is, in one word: equal for servers that answer alike."""

from __future__ import annotations

from hashlib import sha256
from pathlib import PurePath

import msgspec

from pagemill import __version__
from pagemill.config import EngineConfig, flatten

# Where files are, and what they are called, changes no answer.
_PLACES = frozenset({"model", "cache_dir", "served_model_name"})


def system_fingerprint(config: EngineConfig, model: str) -> str:
    """Of this version with these options and the model at `model`, whose last part names it."""
    options = {name: value for name, value in flatten(config).items() if name not in _PLACES}
    told = msgspec.json.encode((__version__, PurePath(model).name, options), order="sorted")
    return f"fp_{sha256(told).hexdigest()[:16]}"
