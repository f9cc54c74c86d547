"""Rules by which a model writes what it hears (cc/grammar/transcript_matcher.h)."""

from __future__ import annotations

import msgspec


class TranscriptRules(msgspec.Struct, array_like=True, frozen=True):
    """Of one output. Tokens are below `vocab_size`, those below `end` are text."""

    vocab_size: int
    end: int
    """The token that ends an output."""
    suppressed: tuple[int, ...] = ()
    """Tokens that it never has."""
    suppressed_first: tuple[int, ...] = ()
    """Tokens that it does not begin with."""
    timestamp_begin: int | None = None
    """The timestamp of 0 s; all tokens from there on are timestamps. None: the output has none."""
    max_first_timestamp: int = 0
    """The latest timestamp that it may begin with, counted from `timestamp_begin`."""
