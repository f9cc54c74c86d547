"""The real models of the parity tests, and their f32 references in `transformers`.

Files come from environment variables, which the Bazel targets set; without them the tests skip.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint


def model_path(variable: str) -> Path:
    """The file or directory that the environment names; skips the test where it names none."""
    value = os.environ.get(variable, "")
    if not value and "TEST_SRCDIR" not in os.environ:
        pytest.skip(f"{variable} is not set")
    path = Path(value)
    assert path.exists(), f"{variable}={value}"
    return path


def gguf_reference(path: Path) -> PreTrainedModel:
    """The model of a GGUF file, dequantized by `transformers` and computing in f32."""
    settings = load_gguf_checkpoint(str(path), return_tensors=False)["config"]
    config = AutoConfig.for_model(**settings)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=skeleton)[
        "tensors"
    ]
    model = AutoModelForCausalLM.from_config(config)
    weights = {name: tensor.float() for name, tensor in tensors.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.eval()


def save_bf16(reference: PreTrainedModel, directory: Path) -> PreTrainedModel:
    """Save `reference` as a bf16 safetensors checkpoint; returns the f32 reference of that."""
    saved = type(reference)(reference.config)
    saved.load_state_dict(reference.state_dict())
    saved.tie_weights()
    saved.to(torch.bfloat16).save_pretrained(directory)
    return type(reference).from_pretrained(directory, dtype=torch.float32).eval()
