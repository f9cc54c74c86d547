"""What rounding changes in a model of transformers, for the bounds of references.

`Reference.bf16_error` is a trusted implementation's. These are more of them, for models where one
does not say how far another may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

from tests.parity.scaled_checkpoints import Scheme
from tools.gpu.reference import Difference, Reference, difference
from tools.gpu.started import Answer

_MOVED = 4  # ways to round
_UNIT = 2.0**-7  # of bf16: the most that the last bit is of a value


def quantized_difference(
    model: PreTrainedModel, reference: Reference, scheme: Scheme
) -> Difference:
    """Of the model with activations that are rounded to the type of its weights before its layers'
    products, by a scale for a row, or for as many columns of it as a block of weights has."""
    rounded = _in_e4m3 if scheme.dtype == "f8_e4m3" else _in_int8

    def round_inputs(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (x,) = inputs
        columns = scheme.block[1] if scheme.strategy == "block" else x.shape[-1]
        return (torch.cat([rounded(part) for part in x.split(columns, -1)], -1),)

    hooks = [
        module.register_forward_pre_hook(round_inputs)
        for module in model.model.layers.modules()
        if isinstance(module, torch.nn.Linear)
    ]
    with _removed(hooks):
        return difference(_answers(model, reference), reference, "bf16")


def moved_differences(model: PreTrainedModel, reference: Reference) -> Iterator[Difference]:
    """Of the model with results of products in bf16, in some ways to round: each is moved by up to
    a unit in the last place. Which experts a token has depends on it, and its logits on them."""
    for seed in range(_MOVED):
        random = torch.Generator().manual_seed(seed)
        hooks = [
            module.register_forward_hook(_move_results(random))
            for module in model.modules()
            if type(module) is torch.nn.Linear  # not routers, which are some and return choices
        ]
        with _removed(hooks):
            yield difference(_answers(model, reference), reference, "bf16")


def _move_results(
    random: torch.Generator,
) -> Callable[[torch.nn.Module, object, torch.Tensor], torch.Tensor]:
    def move(_: torch.nn.Module, __: object, y: torch.Tensor) -> torch.Tensor:
        factors = 1 + (torch.rand(y.shape, generator=random) - 0.5) * _UNIT
        return (y * factors).bfloat16().to(y.dtype)

    return move


@contextmanager
def _removed(hooks: list[torch.utils.hooks.RemovableHandle]) -> Iterator[None]:
    """At the end."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def _answers(model: PreTrainedModel, reference: Reference) -> list[Answer]:
    """The model's, given the reference's tokens."""
    answers: list[Answer] = []
    for prompt, generated in zip(reference.prompts, reference.generated, strict=True):
        tokens = torch.tensor([*prompt, *generated])
        logits = model(tokens[None, :-1]).logits[0].double()
        of_tokens = logits.log_softmax(-1)[torch.arange(len(tokens) - 1), tokens[1:]]
        best = logits[len(prompt) - 1 :].argmax(-1)
        answers.append(Answer(tokens=best.tolist(), logprobs=of_tokens.tolist()))
    return answers


def _in_e4m3(x: torch.Tensor) -> torch.Tensor:
    """The values of rows whose largest is the largest of e4m3."""
    scales = _scales(x, torch.finfo(torch.float8_e4m3fn).max)
    return (x / scales).to(torch.float8_e4m3fn).to(x.dtype) * scales


def _in_int8(x: torch.Tensor) -> torch.Tensor:
    """The values of rows whose largest is 127."""
    scales = _scales(x, 127)
    return (x / scales).round() * scales


def _scales(x: torch.Tensor, largest: float) -> torch.Tensor:
    return x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / largest
