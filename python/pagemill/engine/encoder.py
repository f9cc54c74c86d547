"""The second program of a model with media: how large its steps are, and what it takes.

sizes = EncoderSizes.of(built.encoder, max_num_tokens=2048)
budget += sizes.bytes(built.encoder, options)
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import _native
from pagemill.runner.build import BuiltEncoder

# Tokens of a step of the encoder, unless one item has more: enough to fill the machine.
_STEP_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    """`max_items` are encoded together, in `max_num_tokens` tokens of the encoder; `step_tokens`
    embeddings are made in a step of the model, and as many are kept."""

    max_items: int
    max_num_tokens: int
    step_tokens: int

    @classmethod
    def of(cls, encoder: BuiltEncoder, max_num_tokens: int) -> EncoderSizes:
        """For steps of the model of at most `max_num_tokens` tokens."""
        traits = encoder.traits
        per_item = traits.rows + traits.class_tokens
        items = max(1, max_num_tokens // traits.tokens)
        together = min(items, max(1, _STEP_TOKENS // per_item))
        return cls(together, together * per_item, items * traits.tokens)

    def options(self, encoder: BuiltEncoder) -> _native.MediaEncoderOptions:
        """What the runner has to know of the encoder."""
        traits = encoder.traits
        return _native.MediaEncoderOptions(
            rows=traits.rows,
            channels=traits.channels,
            tokens=traits.tokens,
            class_tokens=traits.class_tokens,
            width=traits.width,
            max_items=self.max_items,
        )

    def kept_bytes(self, encoder: BuiltEncoder) -> int:
        """Of the embeddings that are kept, which are f32."""
        return self.step_tokens * encoder.traits.width * 4
