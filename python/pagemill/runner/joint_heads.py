"""Builds the program of heads that give all drafts of a request in one pass (Medusa, MLP
speculators), beside that of their target, which is built as for other heads (draft_head.py).

heads = build_joint_heads("medusa", path, source, built, num_drafts=3)
"""

from __future__ import annotations

from pagemill.models.draft_heads import medusa, mlp_speculator
from pagemill.models.draft_heads.base import HeadWeights, JointHeads
from pagemill.models.draft_heads.draft_states import DRAFT_STATES
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.ops.program import ACT
from pagemill.ops.trace import Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.runner.architecture import with_architecture
from pagemill.runner.build import BuiltModel, text_of
from pagemill.runner.config_sizes import check_sizes
from pagemill.weights.source import ModelSource

_ARCHITECTURES = {"medusa": "Medusa heads", "mlp_speculator": "MLP speculator"}
JOINT_METHODS = tuple(_ARCHITECTURES)


def build_joint_heads(
    method: str,
    path: str,
    target_source: ModelSource,
    built: BuiltModel,
    *,
    num_drafts: int,
    rewrite: bool = True,
) -> BuiltModel:
    """The program of the heads of `num_drafts` drafts, undivided, for the target of
    `target_source`, `built` with its states. `method` is one of `JOINT_METHODS`, `path` that of the
    heads' files.

    Raises:
        ModelConfigError: the heads do not fit the target, are fewer, or of another kind.
        WeightsError: a weight is missing, unused or of the wrong shape.
    """
    target_source = with_architecture(target_source)
    target = DraftTarget.of(target_source.architecture, target_source.config)
    source = ModelSource.open(path)
    check_sizes(source, vocabulary=False)
    heads: JointHeads
    if method == "medusa":
        source = medusa.as_heads_read(source)
        heads = medusa.MedusaHeads(source, target, num_drafts)
    else:
        source = mlp_speculator.as_heads_read(source)
        heads = mlp_speculator.MlpSpeculator(source, target, num_drafts)
    trace = Trace()
    own = WeightBinder(trace, source)
    states = trace.input(DRAFT_STATES, ACT, ("tokens", heads.width))
    logits = heads.logits(
        HeadWeights(own, WeightBinder(trace, target_source)),
        trace.input("token_ids", "i32", ("tokens",)),
        states,
        trace.input("logits_rows", "i32", ("logits_rows",)),
    )
    for head, value in enumerate(logits):
        trace.output("logits" if head == 0 else f"logits.{head}", value)
    trace.program.check_integrity()
    own.check_all_used(heads.ignored)
    return BuiltModel(
        program_text=text_of(trace.program, rewrite=rewrite),
        architecture=_ARCHITECTURES[method],
        vocab_size=heads.vocab_size,
        output_size=heads.vocab_size,
        max_model_len=built.max_model_len,
        notes=tuple(own.notes),
        draft_states_width=heads.width,
        draft_heads=len(logits),
    )
