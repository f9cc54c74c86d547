"""What an encoder of text takes for the decoder that attends to it (encoder-decoder models).

    prompt = text.prompt(renderer.encode("Hello"), param="prompt")
    room = min(model_len, text.longest(prompt)) - len(prompt)

A prompt begins with a placeholder for each token of the encoder's text, which is its only media
item; the decoder's first tokens follow. It is frozen, and travels between processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np

from pagemill.inputs.rendered_prompt import MediaFeatures, MediaItem, RenderedPrompt


class EncoderText(msgspec.Struct, array_like=True, frozen=True):
    """Texts of at most `most_tokens` ids below `vocab_size`, for each of which a prompt has the
    token `placeholder`. A decoder begins with the first of the tokens `start`, and with the others
    unless a request has its own; it has at most `decoder_tokens`, with those that it generates."""

    vocab_size: int
    placeholder: int
    start: tuple[int, ...]
    most_tokens: int
    decoder_tokens: int

    def prompt(self, text: np.ndarray, decoder: Sequence[int] = ()) -> RenderedPrompt:
        """The prompt of `text`, i32 [tokens], for a decoder that begins with the tokens `decoder`,
        behind the first of `start` if that is not among them; empty: with `start`.

        Raises:
            ValueError: the text is empty or too long, or has other ids.
            OverflowError: an id of `decoder` does not fit 32 bits.
        """
        count = len(text)
        if not 0 < count <= self.most_tokens:
            raise ValueError(
                f"has {count} tokens; the encoder of this model reads 1 to {self.most_tokens}"
            )
        if text.min() < 0 or text.max() >= self.vocab_size:
            raise ValueError(f"has token ids that are not from 0 to {self.vocab_size - 1}")
        behind = RenderedPrompt.of(self._first_tokens(decoder)).token_ids
        token_ids = np.concatenate([np.full(count, self.placeholder, np.int32), behind])
        features = MediaFeatures(text.astype(np.float32)[:, None], count)
        content_id = hashlib.sha256(text.tobytes()).hexdigest()
        return RenderedPrompt(token_ids, (MediaItem(content_id, 0, features),))

    def _first_tokens(self, decoder: Sequence[int]) -> Sequence[int]:
        if not decoder:
            return self.start
        begins = decoder[0] == self.start[0]
        return decoder if begins else [self.start[0], *decoder]

    def longest(self, prompt: RenderedPrompt) -> int:
        """The tokens that `prompt`, which `self.prompt` made, and its output can have together."""
        return prompt.media[0].features.tokens + self.decoder_tokens
