"""Marks in generated texts: the engine's, and how they are found (docs/watermarks.md).

watermark = load_watermark(WatermarkConfig(watermark_key_file="key"))
detect(watermark, token_ids).p_value  # 1e-30: a text of this key; 0.4: none
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pagemill import _native
from pagemill.config import ConfigError
from pagemill.config.watermark import WatermarkConfig
from pagemill.engine.secret_file import read_secret

_FLAG = "--watermark-key-file"
_LEAST_CHARS = 16


class Detection(NamedTuple):
    """What the tokens of a text say of a key."""

    num_tokens: int
    """Tokens whose numbers count: not the first ones, and each context once."""
    score: float
    """The mean of -log(1 - number): about 1 in a text without the mark, more with it; 0 of none."""
    p_value: float
    """How likely a text without the mark has such a score, or a higher one."""


def load_watermark(config: WatermarkConfig) -> _native.Watermark | None:
    """The watermark of the configured key; None without one.

    Raises:
        ConfigError: the file cannot be read, or holds no secret of enough characters.
    """
    secret = read_secret(_FLAG, config.watermark_key_file)
    if not config.watermark_key_file:
        return None
    if len(secret) < _LEAST_CHARS:
        raise ConfigError(
            f"{_FLAG} {config.watermark_key_file}: the secret has {len(secret)} characters; it"
            f" needs {_LEAST_CHARS}: `openssl rand -hex 32`"
        )
    digest = hashlib.sha256(b"pagemill watermark\0" + secret.encode()).digest()
    key = int.from_bytes(digest[:8], "little")
    return _native.Watermark(key, context_tokens=config.watermark_context_width)


def detect(watermark: _native.Watermark, token_ids: Sequence[int]) -> Detection:
    """Looks for the mark in a text, as the tokens of the model that may have written it."""
    numbers = np.array(watermark.numbers_of(list(token_ids)))
    if not numbers.size:
        return Detection(0, 0.0, 1.0)
    total = float(-np.log1p(-numbers).sum())
    return Detection(numbers.size, total / numbers.size, _upper_gamma(numbers.size, total))


def _upper_gamma(shape: int, x: float) -> float:
    """The probability that the sum of `shape` numbers, each -log of a uniform one, is `x` or more:
    e^-x times the sum of x^k / k! for k below `shape`."""
    if x <= 0:
        return 1.0
    k = np.arange(shape)
    logs = k * math.log(x) - x - np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
    most = float(logs.max())
    return min(1.0, math.exp(most) * float(np.exp(logs - most).sum()))
