"""The encoders of a model with media: how large their steps are, and what they take.

media = MediaSizes.of(built, executor_sizes, config)
encoders = [
    (_native.NativeExecutor(each.encoder.program_text, each.executor_options()), each.native())
    for each in media.encoders
]
runner = _native.ModelRunner(..., encoders=encoders)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.runner.build import BuiltEncoder, BuiltModel

# Tokens of a step of an encoder, unless one item has more or `MediaTraits.step_rows` says
# otherwise: enough to fill the machine.
_STEP_TOKENS = 2048
# Items of a step of an encoder.
_STEP_ITEMS = 64


@dataclass(frozen=True, slots=True)
class MediaMemory:
    """What encoders take: `plans` of their programs, and `kept_bytes` of embeddings in the memory
    of the model; 0 on a device, whose host keeps them."""

    plans: tuple[_native.MemoryPlan, ...]
    kept_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(plan.total_bytes for plan in self.plans) + self.kept_bytes


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    """`max_items` of `encoder_tokens` are encoded together; a step of the model computes
    `step_tokens` embeddings at most."""

    encoder: BuiltEncoder
    max_items: int
    encoder_tokens: int
    step_tokens: int
    _sizes: ExecutorSizes
    _config: EngineConfig

    @classmethod
    def of(cls, encoder: BuiltEncoder, sizes: ExecutorSizes, config: EngineConfig) -> EncoderSizes:
        """The sizes for steps of the model of `sizes`."""
        traits = encoder.traits
        largest = -(-traits.most_tokens // traits.tokens)
        items = max(1, sizes.max_num_tokens // traits.tokens, largest)
        step_tokens = items * traits.tokens
        item_tokens = traits.rows + traits.class_tokens
        # An item of any size is encoded whole, but its tiles need not be encoded together.
        whole = (largest or items) if traits.any_size and not traits.tiles else 1
        step = traits.step_rows or _STEP_TOKENS
        together = min(items, max(whole, step // item_tokens))
        tokens = together * item_tokens
        return cls(encoder, min(together, _STEP_ITEMS), tokens, step_tokens, sizes, config)

    @property
    def max_item_tokens(self) -> int:
        """Tokens of the largest item."""
        traits = self.encoder.traits
        if not traits.any_size:
            return traits.tokens
        most = traits.most_tokens or self.step_tokens
        return min(most, self._sizes.max_num_tokens) if traits.item_ends else most

    @property
    def vocab_size(self) -> int:
        """Of the token ids that its program reads."""
        text = self.encoder.traits.text
        return 1 if text is None else text.vocab_size

    def executor_options(self) -> _native.ExecutorOptions:
        """Those of a program without KV cache and logits."""
        arguments: dict[str, Any] = self._sizes.option_arguments(self._config, num_blocks=1) | {
            "max_num_tokens": self.encoder_tokens,
            "max_num_seqs": self.max_items,
            "max_num_logits_rows": 1,
        }
        if self._sizes.device is not None:
            arguments["kernel_filter"] = ""  # an encoder need not have the op of that kernel
        return _native.ExecutorOptions(**arguments)

    def native(self) -> _native.MediaEncoderOptions:
        """What the runner needs of the encoder."""
        traits = self.encoder.traits
        largest = -(-self.max_item_tokens // traits.tokens)
        return _native.MediaEncoderOptions(
            rows=traits.rows * largest,
            channels=traits.channels,
            tokens=traits.tokens * largest,
            class_tokens=traits.class_tokens,
            width=traits.width,
            max_items=self.max_items,
            max_step_tokens=self.encoder_tokens,
            # With the native option, embeddings are each of as many rows, and items of fewer rows
            # fit, too. Items of one size are the largest of these.
            any_size=True,
            grid=traits.grid,
            placed=traits.placed or traits.tiles,
            tile_rows=traits.rows if traits.tiles else 0,
            vocab_size=0 if traits.text is None else traits.text.vocab_size,
        )

    def plan(self) -> _native.MemoryPlan:
        """What its program takes."""
        text, options = self.encoder.program_text, self.executor_options()
        device = self._sizes.device
        if device is None:
            return _native.plan_memory(text, options)
        return _native.plan_on_device(
            device,
            text,
            options,
            max_model_len=self.encoder_tokens,
            vocab_size=self.vocab_size,
            max_adapter_rank=self._config.lora.max_lora_rank,
        )


@dataclass(frozen=True, slots=True)
class MediaSizes:
    """Those of all encoders of a model, of which there are none if it takes no media."""

    encoders: tuple[EncoderSizes, ...]
    _on_device: bool

    @classmethod
    def of(cls, built: BuiltModel, sizes: ExecutorSizes, config: EngineConfig) -> MediaSizes:
        """The sizes for steps of the model of `sizes`."""
        encoders = (EncoderSizes.of(encoder, sizes, config) for encoder in built.encoders)
        return cls(tuple(encoders), sizes.device is not None)

    @property
    def step_tokens(self) -> int:
        """Embeddings that a step of the model computes at most, by all encoders together, and that
        are kept; 0: it takes no media."""
        return max((each.step_tokens for each in self.encoders), default=0)

    @property
    def max_item_tokens(self) -> int:
        """Tokens of the largest item that front ends make of an image or a video: encoders that
        state their own largest do not count beside those that take as many as a step."""
        by_step = [each for each in self.encoders if not each.encoder.traits.most_tokens]
        sizes = by_step or self.encoders
        return max((each.max_item_tokens for each in sizes), default=0)

    @property
    def text_rows(self) -> bool:
        """Whether the model's program reads the step's array of that name."""
        return any(each.encoder.traits.text_rows for each in self.encoders)

    @property
    def item_ends(self) -> bool:
        """Whether the model's program reads the step's array of that name."""
        return any(each.encoder.traits.item_ends for each in self.encoders)

    @property
    def encoder_ends(self) -> bool:
        """Whether the model's program reads the step's arrays of an encoder-decoder."""
        return any(each.encoder.traits.encoder_decoder for each in self.encoders)

    def memory(self) -> MediaMemory:
        """What all of it takes; embeddings that are kept are f32."""
        plans = tuple(each.plan() for each in self.encoders)
        widths = {each.encoder.traits.width for each in self.encoders}
        kept_bytes = 0 if self._on_device else self.step_tokens * max(widths, default=0) * 4
        return MediaMemory(plans, kept_bytes)
