"""Adapters of random weights that PEFT makes and saves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

NAMES = ("first", "second")
_LAYERS = "q_proj|v_proj|o_proj|up_proj|down_proj|embed_tokens"


def with_adapters(
    model: PreTrainedModel,
    path: Path,
    names: Sequence[str] = NAMES,
    *,
    spread: float = 0.3,
    **config: Any,
) -> PeftModel:
    """`model` with adapters of random weights of this `spread`: each is saved in the folder of its
    name in `path`, "default" in `path` itself."""
    made: PeftModel | None = None
    for number, name in enumerate(names):
        layers = rf".*language_model.*\.({_LAYERS})"
        options = {"lora_alpha": 8, "init_lora_weights": False, "target_modules": layers, **config}
        lora = LoraConfig(r=2 + number, **options)
        if made is None:
            made = get_peft_model(model, lora, adapter_name=name)
        else:
            made.add_adapter(name, lora)
    assert made is not None
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_" in name and "magnitude" not in name:
                parameter.normal_(0, spread)
    made.save_pretrained(path)
    return made.eval()
