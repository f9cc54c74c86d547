"""f32 references in `transformers` of the real models of the parity tests."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint


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
