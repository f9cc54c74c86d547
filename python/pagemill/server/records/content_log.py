"""Prompts and outputs in the log (`--enable-log-requests`, `--enable-log-outputs`).

A line holds a bounded part of one prompt or output, and the name of its key: no header, no key and
no image is ever passed here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pagemill.config.content_log import ContentLogConfig

_LOGGER = logging.getLogger("pagemill.contents")
_DEFAULT_LEN = 2048
_REQUEST_TOKENS = 2**15
"""That are written of all prompts of a request, or of all its outputs, unless one may have more:
the event loop waits for them."""

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, control tokens included."""


@dataclass(frozen=True, slots=True)
class Source:
    """Whose request it is: its id and the name of its key, and the name of the model."""

    request_id: str
    key_id: str
    model: str


class ContentLog:
    """Writes prompts at once; `outputs` follows those of one request."""

    def __init__(self, config: ContentLogConfig, decode: Decode | None) -> None:
        """`decode` None: there is no tokenizer, and token ids are logged."""
        self._config = config
        self._decode = decode
        self._most = config.max_log_len or _DEFAULT_LEN

    @classmethod
    def of(cls, config: ContentLogConfig, decode: Decode | None) -> ContentLog | None:
        """The log that `config` wants; None if it wants none."""
        if not (config.enable_log_requests or config.enable_log_outputs):
            return None
        kinds = ("prompts", config.enable_log_requests), ("outputs", config.enable_log_outputs)
        named = " and ".join(name for name, is_logged in kinds if is_logged)
        _LOGGER.warning("%s of requests are written to this log", named)
        return cls(config, decode)

    def prompts(
        self, source: Source, prompts: Sequence[np.ndarray], said: Mapping[str, object]
    ) -> None:
        """Logs each prompt of a request, if prompts are wanted; `said` are its other fields."""
        if not self._config.enable_log_requests:
            return
        left = max(self._most, _REQUEST_TOKENS)
        for index, prompt in enumerate(prompts):
            if left < min(self._most, len(prompt)):
                more = {"index": index, "prompt": f"{len(prompts) - index} more prompts"}
                self._write("prompt", source, more)
                return
            left -= min(self._most, len(prompt))
            number = {"index": index} if len(prompts) > 1 else {}
            fields = {**number, "prompt_tokens": len(prompt), **said}
            fields["prompt"] = self._shown(prompt[: self._most].tolist(), len(prompt))
            self._write("prompt", source, fields)

    def outputs(self, source: Source, num_choices: int) -> OutputLog | None:
        """What logs the outputs of a request; None if they are not wanted."""
        if not self._config.enable_log_outputs:
            return None

        def write(index: int, tokens: Sequence[int], count: int, reason: str) -> None:
            shown = self._shown(tokens, count)
            said = {"index": index, "finish_reason": reason, "completion_tokens": count}
            self._write("output", source, {**said, "output": shown})

        return OutputLog(write, num_choices, self._most)

    def _shown(self, tokens: Sequence[int], count: int) -> str:
        """The beginning of what has `count` tokens, of which `tokens` are the first."""
        text = str(list(tokens)) if self._decode is None else self._decode(tokens)
        is_whole = len(tokens) == count and len(text) <= self._most
        return text if is_whole else text[: self._most] + "..."

    def _write(self, what: str, source: Source, fields: Mapping[str, object]) -> None:
        own = {"request_id": source.request_id, "key": source.key_id, "model": source.model}
        known = {k: value for k, value in {**own, **fields}.items() if value not in ("", None)}
        _LOGGER.info(what, extra={"fields": known})


class OutputLog:
    """The outputs of one request, as far as a log holds them."""

    def __init__(
        self, write: Callable[[int, Sequence[int], int, str], None], num_choices: int, most: int
    ) -> None:
        """`write` gets index, first tokens, number of tokens and finish reason of a choice."""
        self._write = write
        self._most = most
        self._left = max(most, _REQUEST_TOKENS)
        self._tokens: list[list[int]] = [[] for _ in range(num_choices)]
        self._counts = [0] * num_choices
        self._ended: set[int] = set()

    def add(self, index: int, token_ids: Sequence[int], finish_reason: str | None) -> None:
        """Adds tokens of a choice, and logs it if they are its last."""
        kept = self._tokens[index]
        added = token_ids[: min(self._most - len(kept), self._left)]
        self._left -= len(added)
        kept += added
        self._counts[index] += len(token_ids)
        if finish_reason is not None:
            self._end(index, finish_reason)

    def close(self, reason: str) -> None:
        """Logs choices that did not come to their end, with `reason`."""
        for index in range(len(self._counts)):
            if index not in self._ended:
                self._end(index, reason)

    def _end(self, index: int, reason: str) -> None:
        self._ended.add(index)
        self._write(index, self._tokens[index], self._counts[index], reason)
