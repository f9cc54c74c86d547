"""Prompts as rows of embeddings: media items of a model of text, whose encoder returns its input.

traits = embeds_traits(model, source)
program = identity_program(traits)     # in place of an encoder's
check_reads_embeds(program_of_the_model, source.architecture)
"""

from __future__ import annotations

from pagemill import ops
from pagemill.inputs.prompt_embeds import ROWS_PER_ITEM
from pagemill.models.base import MediaTraits, Model, ModelConfigError
from pagemill.ops.program import ACT, Program
from pagemill.ops.trace import Trace

_REFUSAL = "--enable-prompt-embeds"


def embeds_traits(model: Model, architecture: str) -> MediaTraits:
    """Items of any number of rows, one for each token, as wide as the model's embeddings.

    Raises:
        ModelConfigError: the model does not generate.
    """
    traits = model.traits
    if not traits.generates:
        raise ModelConfigError(f"{_REFUSAL}: {architecture} does not generate")
    width = traits.hidden_size
    return MediaTraits(
        rows=1,
        channels=width,
        tokens=1,
        width=width,
        placeholders={},
        any_size=True,
        most_tokens=ROWS_PER_ITEM,
    )


def identity_program(media: MediaTraits) -> Program:
    """The program of an encoder whose features are the embeddings."""
    trace = Trace()
    features = trace.input("features", ACT, ("tokens", media.channels))
    tokens = trace.input("media_rows", "i32", ("media_rows",))
    trace.output("embeddings", ops.select_rows(features, tokens))
    trace.program.check_integrity()
    return trace.program


def check_reads_embeds(program: Program, architecture: str) -> None:
    """Checks that embeddings take the place of all that a model's `program` reads of token ids.

    Raises:
        ModelConfigError: it ignores them, or reads token ids in its layers, too.
    """
    by_ids = [op.op for op in program.ops if "token_ids" in op.inputs and op.op != "apply_adapter"]
    if by_ids != ["embedding"] or not any("embeddings" in op.inputs for op in program.ops):
        raise ModelConfigError(f"{_REFUSAL}: {architecture} needs the token ids of its prompts")
