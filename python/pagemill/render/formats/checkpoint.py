"""What a model's own files say of the formats that are not the same for all of its family."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

_MAX_SUFFIX = 64


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One model's.

    `tokens`: texts of its vocabulary's added tokens. `settings`: its `tokenizer_config.json`.
    """

    tokens: Collection[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def suffix(self, tag: str) -> str:
        """What the checkpoint writes behind the names of its tags, as in `<tag:6124c78e>`; "" if
        the vocabulary, and the setting `token_suffix`, have none."""
        pattern = re.compile(rf"<{re.escape(tag)}([^\w<>\s][^<>\s]{{0,{_MAX_SUFFIX}}})>")
        found = sorted(match[1] for text in self.tokens if (match := pattern.fullmatch(text)))
        if found or f"<{tag}>" in self.tokens:
            return found[0] if found else ""
        suffix = self.settings.get("token_suffix")
        return suffix if isinstance(suffix, str) and len(suffix) <= _MAX_SUFFIX else ""
