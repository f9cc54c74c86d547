"""Log probabilities in the two shapes of the HTTP contract."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.engine.outputs import TokenLogprobs
from pagemill.server.protocol.chat import (
    ChoiceLogprobs,
    ContentLogprob,
    PromptLogprob,
    PromptLogprobs,
    TopLogprob,
)
from pagemill.server.protocol.completion import CompletionLogprobs
from pagemill.server.rendering import Renderer

FLOOR = -9999.0  # JSON has no infinity; clients of the contract know this value


class LogprobFormatter:
    """Writes tokens as text, or as `token_id:123` if the request has that option."""

    def __init__(self, renderer: Renderer, as_token_ids: bool) -> None:
        self._renderer = renderer
        self._as_token_ids = as_token_ids

    def token(self, token_id: int) -> str:
        """A token's name in a response."""
        if self._as_token_ids:
            return f"token_id:{token_id}"
        return self._renderer.token_text(token_id)

    def chat(self, entries: Sequence[TokenLogprobs], top_logprobs: int) -> ChoiceLogprobs:
        """The chat shape; `top_logprobs` of -1 gives all there are."""
        return ChoiceLogprobs(
            [
                ContentLogprob(
                    token=self.token(entry.token_id),
                    logprob=max(entry.logprob, FLOOR),
                    bytes=list(self._renderer.token_bytes(entry.token_id)),
                    top_logprobs=[
                        TopLogprob(
                            self.token(token),
                            max(logprob, FLOOR),
                            list(self._renderer.token_bytes(token)),
                        )
                        for token, logprob in (
                            entry.top if top_logprobs < 0 else entry.top[:top_logprobs]
                        )
                    ],
                )
                for entry in entries
            ]
        )

    def prompt(self, entries: Sequence[TokenLogprobs]) -> PromptLogprobs:
        """`prompt_logprobs`: nothing for the first token, then token id -> log probability."""
        shaped: PromptLogprobs = [None]
        for entry in entries:
            row = {str(entry.token_id): self._prompt(entry.token_id, entry.logprob, entry.rank)}
            for rank, (token, logprob) in enumerate(entry.top, start=1):
                if token != entry.token_id:
                    row[str(token)] = self._prompt(token, logprob, rank)
            shaped.append(row)
        return shaped

    def completion(
        self,
        entries: Sequence[TokenLogprobs],
        offsets: Sequence[int],
        first_prompt_token: int | None = None,
    ) -> CompletionLogprobs:
        """The completions shape.

        Args:
            entries: the tokens.
            offsets: for each token, the character of the choice's text at which it begins.
            first_prompt_token: comes before `entries`; it has an offset but no probability.
        """
        shaped = CompletionLogprobs(list(offsets), [], [], [])
        if first_prompt_token is not None:
            shaped.tokens.append(self.token(first_prompt_token))
            shaped.token_logprobs.append(None)
            shaped.top_logprobs.append(None)
        for entry in entries:
            text, logprob = self.token(entry.token_id), max(entry.logprob, FLOOR)
            top = {text: logprob}
            for other, other_logprob in entry.top:
                # Two tokens may have the same text (parts of characters): the likelier one stays.
                top.setdefault(self.token(other), max(other_logprob, FLOOR))
            shaped.tokens.append(text)
            shaped.token_logprobs.append(logprob)
            shaped.top_logprobs.append(top)
        return shaped

    def _prompt(self, token: int, logprob: float, rank: int) -> PromptLogprob:
        return PromptLogprob(max(logprob, FLOOR), rank, self._renderer.token_text(token))
