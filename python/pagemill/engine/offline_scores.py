"""Scores of documents for a query, offline: pairs that a classifier reads, and vectors that are
compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pagemill.engine.limits import text_prompt
from pagemill.engine.offline_prompts import OfflinePrompts, content_of
from pagemill.engine.outputs import EngineError
from pagemill.inputs.late_interaction import LateInteraction
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import ROLES, activated, likeness, pair_messages, reads_pairs
from pagemill.inputs.task import Pooled, Task
from pagemill.render.token_id_renderer import AnyRenderer

Content = str | Mapping[str, Any]
"""A text, or `{"content": parts}`, of a message that the chat template writes."""


class OfflineScores(NamedTuple):
    """Scores by a model that gives `pooled`, and reads texts by `rules` whose vectors of tokens are
    compared. `pool` gives the rows of prompts."""

    renderer: AnyRenderer
    prompts: OfflinePrompts
    rules: LateInteraction
    pooled: Pooled
    pool: Callable[[Sequence[RenderedPrompt]], list[np.ndarray]]

    def score(self, query: Content, documents: Sequence[Content], instruction: str) -> np.ndarray:
        """How well each document fits the query: float32 [documents].

        Raises:
            RenderError: the chat template refuses them, or there is none for parts.
            EngineError: the model has not one class, or there is an instruction or a content of
                parts, and no template that takes one.
        """
        read_query = _read(query, "query")
        read = [_read(document, "documents") for document in documents]
        for_pairs = reads_pairs(self.renderer.chat_template)
        if self.pooled.task is not Task.CLASSIFY:
            return self._compared(read_query, read, for_pairs)
        if self.pooled.width != 1:
            raise EngineError(
                "FAILED_PRECONDITION",
                f"a score needs one class; the model has {self.pooled.width}",
            )
        pair = self._by_template if for_pairs else self._together
        logits = np.stack(self.pool([pair(read_query, each, instruction) for each in read]))
        return activated(logits, self.pooled.activation)[:, 0]

    def _by_template(self, query: _Read, document: _Read, instruction: str) -> RenderedPrompt:
        return self.prompts.conversation(pair_messages(query, document, instruction))

    def _together(self, query: _Read, document: _Read, instruction: str) -> RenderedPrompt:
        if instruction or not isinstance(query, str) or not isinstance(document, str):
            what = "instruction is" if instruction else "parts are"
            raise EngineError(
                "INVALID_ARGUMENT", f"{what} for models with a chat template for pairs of texts"
            )
        ids, start = self.renderer.encode_pair(query, document)
        return RenderedPrompt(text_prompt(ids, "documents").token_ids, second_text_start=start)

    def _compared(self, query: _Read, documents: Sequence[_Read], for_pairs: bool) -> np.ndarray:
        texts = [each for each in (query, *documents) if isinstance(each, str)]
        if for_pairs or len(texts) <= len(documents):
            roles = ROLES if for_pairs else ("user", "user")
            prompts = [self.prompts.message(roles[0], query)]
            prompts += [self.prompts.message(roles[1], each) for each in documents]
            first, *others = self.pool(prompts)
        else:
            first_ids, *ids = (prompt.token_ids for prompt in self.prompts.to_pool(texts))
            read = [self.rules.query(first_ids), *map(self.rules.document, ids)]
            first, *rows = self.pool([RenderedPrompt(each) for each in read])
            others = map(self.rules.kept, read[1:], rows)
        return np.array([likeness(first, rows, self.pooled) for rows in others], np.float32)


_Read = str | Sequence[Any]


def _read(content: Content, argument: str) -> _Read:
    return content if isinstance(content, str) else content_of(content, argument)
