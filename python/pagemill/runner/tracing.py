"""Traces the programs of a model and of its encoders.

weights = trace_model(model, source, tail, media=())
weights.trace.program
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.layers.base import Weights
from pagemill.models.base import (
    EncoderInputs,
    ItemEncoder,
    MediaInputs,
    MediaTraits,
    Model,
    RowEndModel,
    StepInputs,
)
from pagemill.models.draft_heads.draft_states import DRAFT_STATES, DraftStates
from pagemill.ops.program import ACT, GRID_DIMS
from pagemill.ops.shard import Shard
from pagemill.ops.trace import Tensor, Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.runner.tail import Tail, trace_tail
from pagemill.weights.source import ModelSource


def trace_model(
    model: Model,
    source: ModelSource,
    tail: Tail,
    shard: Shard | None = None,
    *,
    adapters: bool = False,
    draft_states: DraftStates | None = None,
    keeps_context: bool = False,
    media: Sequence[MediaTraits],
) -> WeightBinder:
    """The binder whose trace holds the program of `model` with the weights of `source`; see
    `BuildOptions`. Without `media`, those of each encoder, it takes token ids alone.

    Raises:
        ModelConfigError: the model has not the `draft_states`.
        WeightsError: a weight is missing or of the wrong shape.
    """
    trace = Trace(keeps_context=keeps_context)
    weights = WeightBinder(trace, source, shard, adapter_slots(trace) if adapters else None)
    trace_whole(model, weights, tail, media, draft_states)
    return weights


def trace_whole(
    model: Model,
    weights: Weights,
    tail: Tail,
    media: Sequence[MediaTraits],
    draft_states: DraftStates | None = None,
) -> None:
    """Traces `model` and its `tail` in the trace of `weights`; see `trace_model`."""
    hidden = trace_hidden(model, weights, media)
    if draft_states is not None:
        weights.trace.output(DRAFT_STATES, draft_states.trace(model, hidden))
    trace_tail(weights, model, hidden, tail)
    weights.trace.program.check_integrity()


def trace_hidden(model: Model, weights: Weights, media: Sequence[MediaTraits]) -> Tensor:
    """Traces `model` without a tail: [tokens, hidden size]."""
    trace = weights.trace
    sees_prompt = model.traits.generates and not model.traits.causal
    if sees_prompt or any(each.item_ends for each in media):
        trace.input("item_ends", "i32", ("tokens",))
    encoder_decoder = any(each.encoder_decoder for each in media)
    if encoder_decoder:
        trace.input("encoder_ends", "i32", ("tokens",))
    inputs = StepInputs(
        trace.input("token_ids", "i32", ("tokens",)),
        trace.input("positions", "i32", ("tokens",)),
        media_inputs(trace, media),
        grid_positions(trace) if any(each.token_grid for each in media) else None,
        trace.input("token_types", "i32", ("tokens",)) if model.traits.token_types else None,
        trace.input("text_rows", "i32", ("text_rows",))
        if any(each.text_rows for each in media)
        else None,
        trace.input("decoder_positions", "i32", ("tokens",)) if encoder_decoder else None,
    )
    return model.hidden(weights, inputs)


def media_inputs(trace: Trace, media: Sequence[MediaTraits]) -> MediaInputs | None:
    """The embeddings that a program reads in place of those of placeholders."""
    if not media:
        return None
    return MediaInputs(
        trace.input("embeddings", ACT, ("media_rows", media[0].width)),
        trace.input("media_rows", "i32", ("media_rows",)),
    )


def adapter_slots(trace: Trace) -> Tensor:
    """The slot of the adapter of each token, -1 for none."""
    return trace.input("adapter_slots", "i32", ("tokens",))


def grid_positions(trace: Trace) -> Tensor:
    """The positions of tokens in time, row and column."""
    return trace.input("grid_positions", "i32", ("tokens", GRID_DIMS))


def trace_encoder(encoder: ItemEncoder, media: MediaTraits, own: Weights) -> None:
    """Traces the program of an encoder, in the trace of its `own` weights."""
    trace = own.trace
    if media.text is None:
        features = trace.input("features", ACT, ("tokens", media.channels))
    else:
        features = trace.input("token_ids", "i32", ("tokens",))
    tokens = trace.input("media_rows", "i32", ("media_rows",))
    positions = trace.input("positions", "i32", ("tokens",))
    grid = grid_positions(trace) if media.grid else None
    inputs = EncoderInputs(MediaInputs(features, tokens), positions, grid)
    trace.output("embeddings", encoder.embeddings(own, inputs))
    if isinstance(encoder, RowEndModel):
        trace.output("row_end", encoder.row_end(own, inputs))
    trace.program.check_integrity()
