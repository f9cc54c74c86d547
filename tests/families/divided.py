"""A model divided as its row of the table says: between ranks, whose programs run in threads that
meet in their collectives, and between stages, whose programs run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from pagemill import _native
from pagemill.models.table import find
from pagemill.ops.cut import cut
from pagemill.ops.program import ACT, GRID_DIMS
from pagemill.ops.program_text import from_text, to_text
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.weights.source import ModelSource

Array = npt.NDArray[np.float32]
Steps = Sequence[Mapping[int, Sequence[int]]]
"""The tokens of each request in each step."""
Distance = Callable[[Array], float]
"""How far rows are from the right ones, in tolerances."""

_NUM_BLOCKS, _MAX_TOKENS, _MAX_SEQS = 128, 384, 8
_NO_PAIRS: Mapping[int, int] = MappingProxyType({})


def check_ranks(
    source: ModelSource,
    options: BuildOptions,
    steps: Steps,
    distance: Distance,
    seconds: Mapping[int, int] = _NO_PAIRS,
    *,
    count: int = 2,
    partly: bool | None = None,
    whole_experts: bool = False,
) -> None:
    """Ranks, two by default, compute the rows of the steps, and divide what the row of the table
    says, or all of the model's large matrices if not `partly`; and the experts of a layer by
    number, if they are to have `whole_experts`. `seconds` are `SimpleBatch`'s."""
    if partly is None:
        partly = find(source.architecture).row.tensor_parallel == "partly"
    shards = [Shard(rank, count, whole_experts=whole_experts) for rank in range(count)]
    ranks = [build(source, replace(options, shard=shard)) for shard in shards]
    assert [bool(rank.notes) for rank in ranks] == [partly] * count
    segment = _native.SharedSegment(count)

    def run(rank: int) -> Array:
        world = _native.World(segment, rank)
        built = ranks[rank]
        whole_prompts = not built.chunked_prefill
        return _run([built.program_text], steps, seconds, world, whole_prompts=whole_prompts)

    with ThreadPoolExecutor(count) as threads:
        for rows in threads.map(run, range(count)):
            assert distance(rows) <= 1


def check_stages(
    source: ModelSource,
    options: BuildOptions,
    steps: Steps,
    distance: Distance,
    seconds: Mapping[int, int] = _NO_PAIRS,
) -> None:
    """Two stages compute the rows of the steps, cut behind each layer if the row of the table says
    so."""
    built = build(source, replace(options, rewrite=False))
    program, whole_prompts = from_text(built.program_text), not built.chunked_prefill
    layers = [value.name for value in program.values if value.name.startswith("layer.")]
    refused = 0
    for layer in layers[:-1]:
        try:
            stages = cut(program, layer)
        except ValueError:
            refused += 1
            continue
        texts = [_native.rewrite_program(to_text(stage)) for stage in stages]
        rows = _run(texts, steps, seconds, whole_prompts=whole_prompts)
        assert distance(rows) <= 1, layer
    assert refused < len(layers) - 1
    assert not refused or find(source.architecture).row.cuts == "some layers"


def _run(
    texts: Sequence[str],
    steps: Steps,
    seconds: Mapping[int, int],
    world: _native.World | None = None,
    *,
    whole_prompts: bool,
) -> Array:
    """The rows of all tokens that programs compute one after the other, each of what the one before
    it returned; the first gets no images. `whole_prompts` is `SimpleBatch`'s."""
    stages = [_executor(text, world) for text in texts]
    if world is not None:
        world.meet()
    batches = [
        SimpleBatch(_NUM_BLOCKS, stage.table_block_sizes, whole_prompts=whole_prompts)
        for stage in stages
    ]
    received = [entry for entry in from_text(texts[0]).inputs if entry.dtype == ACT]
    no_images = {entry.name: np.zeros((0, int(entry.shape[1])), np.float32) for entry in received}
    rows: list[Array] = []
    for tokens in steps:
        outputs = no_images
        for stage, batch in zip(stages, batches, strict=True):
            arrays = batch.step(tokens, all_logits=True, second_texts=seconds)
            arrays["grid_positions"] = np.tile(arrays["positions"][:, None], (1, GRID_DIMS))
            arrays["text_rows"] = np.arange(len(arrays["positions"]), dtype=np.int32)
            outputs = stage(arrays | {"inputs": outputs})
        (result,) = outputs.values()
        rows.append(result)
    return np.concatenate(rows)


def _executor(text: str, world: _native.World | None = None) -> _native.NativeExecutor:
    options = _native.ExecutorOptions(
        num_threads=1,
        max_num_tokens=_MAX_TOKENS,
        max_num_seqs=_MAX_SEQS,
        max_num_logits_rows=_MAX_TOKENS,
        num_blocks=_NUM_BLOCKS,
        kv_cache_dtype="f32",
        activation_dtype="f32",
        activation_type="f32",
    )
    return _native.NativeExecutor(text, options, world)
