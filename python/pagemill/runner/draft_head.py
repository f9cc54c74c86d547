"""Builds the program of a head that drafts from hidden states, beside that of its target.

built = build(source, BuildOptions(draft_states=head_states("eagle3", path)))
head = build_head("eagle3", path, source, built)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagemill import ops
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import MediaTraits, StepInputs
from pagemill.models.deepseek_v4 import DeepseekV4Model
from pagemill.models.draft_heads import eagle3, eagle_files
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

_ARCHITECTURES = {"eagle": "EAGLE head", "eagle3": "EAGLE-3 head", "mtp": "MTP layer"}


def head_states(method: str, path: str | None) -> DraftStates:
    """What the target's program returns for a head of this `method` of `HeadFiles`, whose files are
    at `path`, None if they are the target's.

    Raises:
        ModelConfigError: the head's configuration is not supported.
        WeightsError: its files cannot be read.
    """
    if method != "eagle3":
        return DraftStates(of_mtp=method == "mtp")
    assert path is not None
    return DraftStates(eagle3.projection(_open(path)))


def build_head(
    method: str,
    path: str | None,
    target_source: ModelSource,
    built: BuiltModel,
    *,
    rewrite: bool = True,
) -> BuiltModel:
    """The program of the head, undivided, for the target of `target_source`, `built` with its
    states. `method` is "mtp", "eagle" or "eagle3", `path` that of `head_states`.

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
        head = (EagleHead if method == "eagle" else eagle3.Eagle3Head)(source, target)
        own = WeightBinder(trace, source)
    media = [encoder.traits for encoder in built.encoders]
    hidden_size = target.decoder.sizes.hidden_size
    inputs = _inputs(trace, head, media, hidden_size)
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
        draft_media_width=media[0].width if media else 0,
        draft_grid_positions=inputs.step.grid_positions is not None,
        draft_token_ids=head.token_ids,
    )


def _open(path: str) -> ModelSource:
    source = eagle_files.as_heads_read(ModelSource.open(path))
    check_sizes(source, vocabulary=False)
    return source


def _inputs(
    trace: Trace, head: DraftHead, media: Sequence[MediaTraits], hidden_size: int
) -> HeadInputs:
    """Those of a head for a target of this `hidden_size` that takes `media`."""
    token_ids = trace.input("token_ids", "i32", ("tokens",))
    positions = trace.input("positions", "i32", ("tokens",))
    states = trace.input(DRAFT_STATES, ACT, ("tokens", head.width))
    read = media_inputs(trace, media)
    if read is not None:  # the first of what a tower may have side by side
        read = replace(read, rows=side_by_side(read.rows, hidden_size)[0])
    grid = grid_positions(trace) if any(each.token_grid for each in media) else None
    return HeadInputs(StepInputs(token_ids, positions, read, grid), states)


def _trace(head: DraftHead, weights: HeadWeights, inputs: HeadInputs) -> None:
    trace = weights.own.trace
    hidden = head.hidden(weights, inputs)
    rows = ops.select_rows(hidden, trace.input("logits_rows", "i32", ("logits_rows",)))
    results = head.results(weights, rows)
    trace.output("logits", results.logits)
    trace.output(DRAFT_STATES, results.states)
    trace.program.check_integrity()
