"""The configuration of indexers, which choose the tokens that latent attention sees."""

from __future__ import annotations

from pagemill.layers.indexer import Indexer
from pagemill.layers.latent import LatentShape
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, number, positive_int
from pagemill.weights.json_file import shown


def read_indexer(
    config: Config, latent: LatentShape, *, heads: int, interleaved: bool = False
) -> Indexer:
    """The indexer of `latent`; `heads` is the family's default.

    Raises:
        ModelConfigError: its sizes do not fit the attention.
    """
    size = positive_int(config, "index_head_dim", 128)
    if size <= latent.rope or latent.query is None:
        raise ModelConfigError(
            f"an indexer needs q_lora_rank, and index_head_dim above {latent.rope}, the elements"
            f" that rotate; it is {size}"
        )
    return Indexer(
        heads=positive_int(config, "index_n_heads", heads),
        size=size,
        rope=latent.rope,
        # A query sees no more tokens than there are positions.
        choices=min(
            positive_int(config, "index_topk", 2048),
            positive_int(config, "max_position_embeddings"),
        ),
        interleaved=interleaved,
    )


def layers_that_choose(config: Config, layers: int) -> list[bool]:
    """Whether each layer has an indexer: from `indexer_types`, or the pattern (F and S) or the
    frequency that older configurations have; else all.

    Raises:
        ModelConfigError: they do not fit the layers, or the first layer has none.
    """
    stated = config.get("indexer_types")
    if stated is None and config.get("index_topk_pattern") is not None:
        pattern = config["index_topk_pattern"]
        names = {"F": "full", "S": "shared"}
        stated = [names.get(c, c) for c in pattern] if isinstance(pattern, str) else pattern
    if stated is None:
        every = positive_int(config, "index_topk_freq", 1)
        first = int(number(config, "index_skip_topk_offset", 2, least=0))
        return [max(layer - first + 1, 0) % every == 0 for layer in range(layers)]
    types = as_list(stated) or []
    known = all(kind in ("full", "shared") for kind in types)
    if len(types) != layers or types[0] != "full" or not known:
        raise ModelConfigError(
            f"indexer_types must list {layers} layers, full or shared, the first full; it is"
            f" {shown(stated)}"
        )
    return [kind == "full" for kind in types]
