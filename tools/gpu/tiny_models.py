"""Tiny checkpoints of every family with references by transformers, for a pack.

Weights are rounded to multiples of 1/8, which bf16 has, too, and which compress to an eighth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.families import encoders, families
from tests.parity import tiny_models
from tests.parity.scaled_checkpoints import SCHEMES, Scheme, write_scaled
from tools.gpu.pooled import PooledReference
from tools.gpu.reference import Reference, compare
from tools.gpu.rounding import moved_differences, quantized_difference
from tools.gpu.started import start
from tools.gpu.tiny import STEP_TOKENS, WIDE_STEP_TOKENS, options

_LENGTHS = (61, 23, 5)  # of prompts
_GENERATED = 16
_GRID = 8
_ROUNDED_BLOCK = (128, 128)  # of weights; with others, activations are not rounded

FAMILIES = sorted(families.FAMILIES)
# Families with other sizes, for kernels that do not take those of the tests.
_VARIANTS: dict[str, tuple[str, dict[str, int]]] = {
    "deepseek_v2-latents64": ("deepseek_v2", {"kv_lora_rank": 64, "qk_rope_head_dim": 16}),
}
VARIANTS = list(_VARIANTS)
# Schemes of weights, and fields of the model's configuration.
_BLOCKS_OF_128 = (
    Scheme("f8_e4m3", "block", "fp8", _ROUNDED_BLOCK),
    {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4},
)
_SCALED: dict[str, tuple[Scheme, dict[str, int]]] = {
    "llama-w8a8": (SCHEMES["w8a8"], {}),
    "llama-fp8-channel": (SCHEMES["fp8-channel"], {}),
    "llama-fp8-block": (SCHEMES["fp8-block"], {}),
    "llama-fp8-block-128": _BLOCKS_OF_128,
    "llama-fp8-block-128-few": _BLOCKS_OF_128,
}
# Whose steps have as few rows as other models': those of Hopper's kernel for few of fp8.
_FEW_ROWS = {"llama-fp8-block-128-few"}
SCALED = list(_SCALED)
ENCODERS = {
    f"encoder-{name}": (name, row.heads[0]) for name, row in sorted(encoders.ENCODERS.items())
}
NAMES = [*FAMILIES, *VARIANTS, *SCALED, *ENCODERS]


class UnusableReferenceError(RuntimeError):
    """The CPU differs from transformers, so nothing can be compared with either."""


def make_all(names: list[str], folder: Path) -> Iterator[str]:
    """Make the checkpoints `names` in folders of their own; yields what became of each."""
    for name in names:
        try:
            error = (_encoder if name in ENCODERS else _decoder)(name, folder / name)
        except UnusableReferenceError as error:
            yield f"{name}: left out, {error}"
            continue
        yield f"{name}: rounded to bf16 it differs by {error:.3g}"


def _encoder(name: str, folder: Path) -> float:
    """The checkpoint and its reference; the CPU's error in bf16."""
    row, task = ENCODERS[name]
    model = encoders.make(row, task, folder)
    _round_file(folder / "model.safetensors")
    reference = PooledReference.of(folder, task, _prompts(name, model), options())
    reference.save(folder)
    return reference.bf16_error


def _prompts(name: str, model: PreTrainedModel) -> list[list[int]]:
    """Without ids of special tokens."""
    random = np.random.default_rng(len(name))
    vocab = int(model.config.vocab_size)
    return [random.integers(6, vocab, length).tolist() for length in _LENGTHS]


def _decoder(name: str, folder: Path) -> float:
    """The checkpoint and its reference, which the CPU's engine confirms in f32; the error in bf16.

    Raises:
        UnusableReferenceError: it does not.
    """
    model = _scaled(name, folder) if name in SCALED else _family(name, folder)
    reference = _compute(model, _prompts(name, model))
    step_tokens = WIDE_STEP_TOKENS if name in {*SCALED} - _FEW_ROWS else STEP_TOKENS
    reference = replace(reference, step_tokens=step_tokens)
    flags = options(step_tokens)
    with start(folder, "cpu", "f32", flags) as started:
        f32 = compare(started, reference, "f32")
        has_experts = "grouped_linear" in started.built.program_text
    reference = replace(reference, has_experts=has_experts)
    if not f32.passed:
        _remove(folder)
        raise UnusableReferenceError(f"the CPU differs by {f32.error:.3g} in f32")
    with start(folder, "cpu", "bf16", flags) as started:
        rounded = [compare(started, reference, "bf16")]
    if name in SCALED:  # devices round activations to 8 bits where weights were made for it
        with start(folder, "cpu", "f32", flags | {"activation_dtype": "auto"}) as started:
            rounded.append(compare(started, reference, "bf16"))
        scheme, _ = _SCALED[name]
        if scheme.strategy != "block" or scheme.block == _ROUNDED_BLOCK:
            rounded.append(quantized_difference(model, reference, scheme))
    if has_experts:
        rounded += moved_differences(model, reference)
    error = max(each.error for each in rounded)
    lost = max(each.lost for each in rounded)
    replace(reference, bf16_error=error, bf16_lost=lost).save(folder)
    return error


def _family(name: str, folder: Path) -> PreTrainedModel:
    name, changes = _VARIANTS.get(name, (name, {}))
    model = families.make(name, folder, changes=changes)
    _round_file(folder / "model.safetensors")
    family = families.FAMILIES[name]
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if not key.endswith(tuple(family.unused)):
                value.copy_(_rounded(value))
        if family.elsewhere is not None and family.elsewhere.prepare is not None:
            family.elsewhere.prepare(model)
    return model


def _scaled(name: str, folder: Path) -> PreTrainedModel:
    scheme, sizes = _SCALED[name]
    model = tiny_models.tiny_llama(num_hidden_layers=2, **sizes)
    return write_scaled(model, folder, scheme)


def _round_file(path: Path) -> None:
    save_file({key: _rounded(value) for key, value in load_file(path).items()}, path)


def _rounded(value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        return value
    return ((value.float() * _GRID).round() / _GRID).bfloat16()


@torch.inference_mode()
def _compute(model: PreTrainedModel, prompts: list[list[int]]) -> Reference:
    """Greedy tokens, each from the whole text: caches are no independent reference."""
    found = Reference("transformers", prompts, [], [], [])
    for prompt in prompts:
        tokens = list(prompt)
        for _ in range(_GENERATED):
            logits = model(torch.tensor([tokens])).logits[0]
            tokens.append(int(logits[-1].argmax()))
        logits = model(torch.tensor([tokens[:-1]])).logits[0].double()
        of_tokens = logits.log_softmax(-1)[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
        best = logits[len(prompt) - 1 :].topk(2).values
        found.generated.append(tokens[len(prompt) :])
        found.logprobs.append(of_tokens.tolist())
        found.margins.append((best[:, 0] - best[:, 1]).tolist())
    if not all(math.isfinite(each) for row in found.logprobs for each in row):
        raise UnusableReferenceError("transformers has logits that are not finite")
    return found


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
