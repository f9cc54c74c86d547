"""Adapters of PEFT on embeddings, heads and experts: eight of them and the model itself in one
batch, each with the tokens that PEFT makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tests.adapters.engine_adapters import adapters_of
from tests.families.families import make
from tests.parity.engine_model import Model
from tests.parity.greedy import wrong_tokens
from tests.parity.small_engine import generate

TOKENS = 12
ADAPTERS = 8
_NEAR_TIE = 1e-3  # tests/parity/engine_model.py
_UNTIED = {"tie_word_embeddings": False}
_EMBEDDINGS = ["embed_tokens", "lm_head", "q_proj"]


def peft_model(model: Model, path: Path, **config: Any) -> PeftModel:
    """`model` with ADAPTERS adapters of random weights, which are saved to `path`/<number>."""
    torch.manual_seed(7)
    made: PeftModel | None = None
    for number in range(ADAPTERS):
        options = {"lora_alpha": 8 + 4 * number, "init_lora_weights": False, **config}
        lora = LoraConfig(r=2 + number % 3, **options)
        if made is None:
            made = get_peft_model(model.reference, lora, adapter_name="0")
        else:
            made.add_adapter(str(number), lora)
    assert made is not None
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3 if "lora_B" in name or "embedding_B" in name else 0.2)
    made.save_pretrained(path)
    return made.eval()


def check(model: Model, reference: PeftModel, path: Path, **options: Any) -> None:
    """One batch with every adapter and the model itself gets the tokens of `reference`."""
    names = ["", *map(str, range(ADAPTERS)), ""]
    prompts = [model.prompt(seed, 5 + 9 * seed) for seed in range(len(names))]
    with model.engine(max_num_seqs=16, enable_lora=True, **options) as core:
        adapters = adapters_of(core)
        for name in filter(None, names):
            adapters.load_adapter(name, str(path / name))
        ids = [adapters.id_of(name) if name else 0 for name in names]
        answers = generate(core, prompts, TOKENS, ids)
    for name, prompt, answer in zip(names, prompts, answers, strict=True):
        if name:
            reference.set_adapter(name)
            wrong = wrong_tokens(reference, prompt, answer.tokens, _NEAR_TIE)
        else:
            with reference.disable_adapter():
                wrong = wrong_tokens(reference, prompt, answer.tokens, _NEAR_TIE)
        assert not wrong, "\n".join([f"adapter {name!r}", *wrong])
    # They differ, or nothing was tested.
    reference.set_adapter("1")
    assert wrong_tokens(reference, prompts[0], answers[0].tokens, _NEAR_TIE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "changes", "config"),
    [
        ("llama", _UNTIED, {"target_modules": _EMBEDDINGS}),
        ("llama", {}, {"target_modules": _EMBEDDINGS}),
        ("llama", {}, {"target_modules": ["embed_tokens"], "ensure_weight_tying": True}),
        ("gemma3", {}, {"target_modules": ["embed_tokens", "down_proj"], "use_rslora": True}),
        ("qwen2", {}, {"target_modules": ["lm_head"]}),
    ],
    ids=["untied", "tied", "tied_adapter", "scaled", "head"],
)
def test_embeddings_and_heads(
    family: str, changes: dict[str, Any], config: dict[str, Any], tmp_path: Path
) -> None:
    model = Model(tmp_path / "model", make(family, tmp_path / "model", changes=changes))
    check(model, peft_model(model, tmp_path, **config), tmp_path)
