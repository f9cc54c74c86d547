"""What models whose layers all keep a state, and none a KV cache, have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import epsilon, flag, layer_count, positive_int
from pagemill.ops.trace import Tensor

# For models that state none: states have no positions, but tables of checkpoints have a size.
_MAX_MODEL_LEN = 2**17


class RecurrentModel(ABC):
    """A `Model` (base.py). A subclass names its `embedding` and its `head`, and has `hidden`."""

    ignored: Mapping[str, str] = IGNORED_IN_DECODERS
    embedding: ClassVar[str]
    head: ClassVar[str] = "lm_head"

    def __init__(
        self, config: Config, *, tied_by_default: bool = False, eps: str = "layer_norm_epsilon"
    ) -> None:
        """`eps` is the key of what norms add to the variance.

        Raises:
            ModelConfigError: a key is missing, or is not of its type.
        """
        self.vocab_size = positive_int(config, "vocab_size")
        self.hidden_size = positive_int(config, "hidden_size")
        self.layers = layer_count(config)
        self._max_model_len = positive_int(config, "max_position_embeddings", _MAX_MODEL_LEN)
        self.norm_eps = epsilon(config, eps, 1e-5)
        self._tied = flag(config, "tie_word_embeddings", tied_by_default)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return ModelTraits(
            self.vocab_size, self.hidden_size, self._max_model_len, causal=True, generates=True
        )

    @abstractmethod
    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor: ...

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        """Token ids, and embeddings in their place -> [T, H]."""
        table = (self.vocab_size, self.hidden_size)
        x = embedding.embedding(weights, self.embedding, inputs.token_ids, table)
        return inputs.with_media(x)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        head = self.embedding if self._tied else self.head
        return embedding.logits(weights, rows, self.vocab_size, head)
