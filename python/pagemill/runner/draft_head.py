"""Builds the program of a head that drafts from hidden states, beside that of its target.

built = build(source, BuildOptions(draft_states=head_states("eagle3", path)))
head = build_head("eagle3", path, source, built)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagemill import ops
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import MediaTraits, ModelConfigError, StepInputs
from pagemill.models.deepseek_v4 import DeepseekV4Model
from pagemill.models.draft_heads import dflash, eagle3, eagle_files
from pagemill.models.draft_heads.base import DraftHead, HeadInputs, HeadWeights
from pagemill.models.draft_heads.draft_states import DRAFT_STATES, DraftStates
from pagemill.models.draft_heads.eagle import EagleHead
from pagemill.models.draft_heads.mtp import MtpHead
from pagemill.models.draft_heads.streams_mtp import StreamsMtpHead
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.ops.program import ACT
from pagemill.ops.trace import Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.runner.architecture import with_architecture
from pagemill.runner.build import BuiltModel, text_of
from pagemill.runner.config_sizes import check_sizes
from pagemill.runner.tracing import grid_positions, media_inputs
from pagemill.weights.source import ModelSource

_ARCHITECTURES = {
    "dflash": "DFlash drafter",
    "eagle": "EAGLE head",
    "eagle3": "EAGLE-3 head",
    "mtp": "MTP layer",
}
_PROJECTIONS = {"dflash": dflash.projection, "eagle3": eagle3.projection}


def head_states(method: str, path: str | None) -> DraftStates:
    """What the target's program returns for a head of this `method` of `HeadFiles`, whose files are
    at `path`, None if they are the target's.

    Raises:
        ModelConfigError: the head's configuration is not supported.
        WeightsError: its files cannot be read.
    """
    if method not in _PROJECTIONS:
        return DraftStates(of_mtp=method == "mtp")
    assert path is not None
    return DraftStates(_PROJECTIONS[method](_open(path)))


def build_head(
    method: str,
    path: str | None,
    target_source: ModelSource,
    built: BuiltModel,
    *,
    parallel: bool = False,
    num_drafts: int = 1,
    rewrite: bool = True,
) -> BuiltModel:
    """The program of the head, undivided, for the target of `target_source`, `built` with its
    states. `method` is "mtp", "eagle", "eagle3" or "dflash", `path` that of `head_states`; the
    first three give one of the `num_drafts` in each pass, unless an EAGLE-3 head is `parallel`.

    Raises:
        ModelConfigError: the head does not fit the target, or is of another kind.
        WeightsError: a weight is missing, unused or of the wrong shape.
    """
    target_source = with_architecture(target_source)
    target = DraftTarget.of(target_source.architecture, target_source.config)
    trace = Trace(keeps_context=True)
    of_target = WeightBinder(trace, target_source)
    if path is None:
        of_streams = isinstance(target.decoder, DeepseekV4Model)
        gguf = target_source.kind == "gguf"
        head: DraftHead = (StreamsMtpHead if of_streams else MtpHead)(target, of_target, gguf=gguf)
        own = of_target
    else:
        source = _open(path)
        head = _head(method, source, target, parallel, num_drafts)
        own = WeightBinder(trace, source)
    media = [encoder.traits for encoder in built.encoders]
    hidden_size = target.decoder.sizes.hidden_size
    inputs = _inputs(trace, head, media, hidden_size)
    reads_media = inputs.step.media is not None
    _trace(head, HeadWeights(own, of_target), inputs)
    own.check_all_used(head.ignored)
    return BuiltModel(
        program_text=text_of(trace.program, rewrite=rewrite),
        architecture=_ARCHITECTURES[method],
        vocab_size=head.vocab_size,
        output_size=head.vocab_size,
        max_model_len=built.max_model_len,
        kv_groups=tuple(trace.program.groups),
        notes=tuple(own.notes),
        draft_states_width=head.width,
        draft_masks=head.masks,
        draft_media_width=media[0].width if reads_media else 0,
        draft_grid_positions=inputs.step.grid_positions is not None,
        draft_token_ids=head.token_ids,
    )


def _open(path: str) -> ModelSource:
    source = eagle_files.as_heads_read(ModelSource.open(path))
    check_sizes(source, vocabulary=False)
    return source


def _head(
    method: str, source: ModelSource, target: DraftTarget, parallel: bool, num_drafts: int
) -> DraftHead:
    if method == "dflash":
        return dflash.DflashHead(source, target, num_drafts)
    if method == "eagle3":
        return eagle3.Eagle3Head(source, target, parallel=parallel)
    return EagleHead(source, target)


def _inputs(
    trace: Trace, head: DraftHead, media: Sequence[MediaTraits], hidden_size: int
) -> HeadInputs:
    """Those of a head for a target of this `hidden_size` that takes `media`."""
    token_ids = trace.input("token_ids", "i32", ("tokens",))
    positions = trace.input("positions", "i32", ("tokens",))
    masks = head.masks
    of_block = masks is not None and masks.block
    rows = "media_rows" if of_block else "tokens"
    states = trace.input(DRAFT_STATES, ACT, (rows, head.width))
    grid = grid_positions(trace) if any(each.token_grid for each in media) else None
    step = StepInputs(token_ids, positions, grid_positions=grid)
    if masks is not None:
        if media and not of_block:
            raise ModelConfigError(
                "a head that drafts in parallel with masks cannot read the embeddings of a model"
                " with media: use --language-model-only, or another head"
            )
        if of_block:
            trace.input("item_ends", "i32", ("tokens",))
            step = replace(step, text_rows=trace.input("text_rows", "i32", ("text_rows",)))
        return HeadInputs(step, states, trace.input("media_rows", "i32", ("media_rows",)))
    read = media_inputs(trace, media)
    if read is not None:  # the first of what a tower may have side by side
        read = replace(read, rows=side_by_side(read.rows, hidden_size)[0])
    return HeadInputs(replace(step, media=read), states)


def _trace(head: DraftHead, weights: HeadWeights, inputs: HeadInputs) -> None:
    trace = weights.own.trace
    hidden = head.hidden(weights, inputs)
    rows = ops.select_rows(hidden, trace.input("logits_rows", "i32", ("logits_rows",)))
    results = head.results(weights, rows)
    trace.output("logits", results.logits)
    trace.output(DRAFT_STATES, results.states)
    trace.program.check_integrity()
