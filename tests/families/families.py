"""The families of the suite, a row each: a tiny model of random weights, built by `transformers`.

A row says what of the family's configuration is not that of `SIZES`. Sizes are odd on purpose, and
what norms add to the variance is large, so that every field of a configuration changes logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from tests.families import absent, alibi_attention
from tests.families.dense import DENSE
from tests.families.family import SIZES, Family
from tests.families.latent import LATENT_ATTENTION
from tests.families.recurrent import RECURRENT
from tests.families.with_experts import WITH_EXPERTS

# Ends of names of biases that balance experts; larger ones would choose the same for every token.
_BALANCING = ("e_score_correction_bias", "expert_bias")

absent.register()
FAMILIES: Mapping[str, Family] = {**DENSE, **WITH_EXPERTS, **LATENT_ATTENTION, **RECURRENT}


def make(
    name: str, directory: Path, *, seed: int = 0, changes: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Save a checkpoint of the family `name`, with `changes` of its configuration, in f32; returns
    its reference."""
    torch.manual_seed(seed)
    family = FAMILIES[name]
    kind = CONFIG_MAPPING[family.model_type]
    known = kind().to_dict().keys()
    fields = {key: value for key, value in SIZES.items() if key in known}
    fields |= dict(family.changes) | dict(changes or {})
    config = kind(**fields)
    alibi_attention.register()
    made: object = AutoModelForCausalLM.from_config(config, attn_implementation=family.attention)
    assert isinstance(made, PreTrainedModel)
    model = made.eval()
    randomize(model)
    if family.elsewhere is not None and family.elsewhere.prepare is not None:
        family.elsewhere.prepare(model)
    model.save_pretrained(directory)
    if family.elsewhere is not None:
        family.elsewhere.rewrite(directory)
    return model


@torch.no_grad()
def randomize(model: PreTrainedModel) -> None:
    """Matrices keep the size of activations; norms and biases are not neutral; embeddings are large
    enough for the last token to matter to the next, but not so large that it would repeat."""
    tied = model.config.tie_word_embeddings
    for name, parameter in model.named_parameters():
        if name.endswith("embed_positions.weight") and not parameter.requires_grad:
            continue  # a table of angles
        noise = torch.randn_like(parameter)
        if name.endswith(_BALANCING):
            parameter.copy_(0.05 * noise)
        elif name.endswith("bias"):
            parameter.copy_(0.3 * noise)
        elif "embed" in name and not tied:
            parameter.copy_(noise)
        elif parameter.ndim == 1:  # norms: around what they are initialized to, 1 or Gemma's 0
            parameter.add_(0.3 * noise)
        else:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("rotary_emb.alpha"):  # logarithms of factors of frequencies
            buffer.copy_(0.3 * torch.randn_like(buffer))
        if name.endswith("tid2eid"):  # the experts of each token id
            experts = torch.rand(len(buffer), model.config.n_routed_experts).argsort(-1)
            buffer.copy_(experts[:, : buffer.shape[1]])
        if name.endswith(_BALANCING):
            buffer.copy_(0.05 * torch.randn_like(buffer))
