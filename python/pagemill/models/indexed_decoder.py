"""The decoder of families whose queries see the tokens that an indexer chooses."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.layers.base import Weights
from pagemill.layers.indexer import Indexer
from pagemill.layers.latent import latent_attention
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import CHOSEN, layer_values
from pagemill.models.base import ModelConfigError
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class IndexedDecoder(Decoder):
    """A `Decoder` with `latent` attention. Layers that are marked in `chooses` have the `indexer`;
    the others see what the last of these has chosen."""

    indexer: Indexer
    chooses: Sequence[bool]

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert self.latent is not None
        sparse: Indexer | Tensor = self.indexer
        if not self.chooses[layer]:
            chosen = list(layer_values(x.trace, CHOSEN).values())
            if not chosen:
                raise ModelConfigError("mtp_indexer_types must be full: no layer is in front of it")
            sparse = chosen[-1]
        name, bias = f"{self.prefix(layer)}.{self.names.attention}", self.attention_parts.bias
        return latent_attention(
            weights, name, x, self.latent, rotary, f"kv{layer}", bias=bias, sparse=sparse
        )
