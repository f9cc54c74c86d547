"""An adapter that PEFT trains on SmolLM2 changes answers as PEFT says it should."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from tests.adapters.engine_adapters import adapters_of
from tests.parity.greedy import wrong_tokens
from tests.parity.real_models import gguf_reference
from tests.parity.small_engine import engine, generate
from tests.parity.smollm2 import NEAR_TIE, open_gguf

# Token ids, so that no tokenizer is needed; the model does not know the answer.
PROMPT = [504, 3575, 282, 4649, 314]
ANSWER = [260, 28, 3575, 47, 1, 1000, 2000, 3000, 4000, 5000, 6000, 7000]
STEPS = 12
SHAPES = {
    "lora": {"r": 8, "lora_alpha": 16},
    "dora": {"r": 4, "lora_alpha": 8, "use_dora": True, "use_rslora": True},
}


def train(model: PeftModel) -> float:
    """The loss of the answer after some steps."""
    ids = torch.tensor([PROMPT + ANSWER])
    labels = ids.clone()
    labels[:, : len(PROMPT)] = -100
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    loss = torch.tensor(0.0)
    for _ in range(STEPS):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


@pytest.fixture(scope="module")
def untrained() -> PreTrainedModel:
    return gguf_reference(open_gguf().path)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_engine_answers_as_peft(shape: str, untrained: PreTrainedModel, tmp_path: Path) -> None:
    source = open_gguf()
    torch.manual_seed(1)
    config = LoraConfig(target_modules="all-linear", init_lora_weights=True, **SHAPES[shape])
    model = get_peft_model(copy.deepcopy(untrained), config)
    assert train(model) < 0.1
    model.save_pretrained(tmp_path / "adapter")
    model.eval()
    with engine(source.path, enable_lora=True, max_num_batched_tokens=64) as core:
        adapters = adapters_of(core)
        facts = adapters.load_adapter("trained", str(tmp_path / "adapter"))
        assert facts["rank"] == SHAPES[shape]["r"]
        prompts = [PROMPT, PROMPT, [*PROMPT, *ANSWER[:3]]]
        names = ["trained", "", "trained"]
        ids = [adapters.id_of(name) if name else 0 for name in names]
        answers = generate(core, prompts, len(ANSWER), ids)
    # What was trained, with the adapter; something else without.
    assert answers[0].tokens == ANSWER
    assert answers[1].tokens != ANSWER
    for prompt, name, answer in zip(prompts, names, answers, strict=True):
        if name:
            wrong = wrong_tokens(model, prompt, answer.tokens, NEAR_TIE)
        else:
            with model.disable_adapter():
                wrong = wrong_tokens(model, prompt, answer.tokens, NEAR_TIE)
        assert not wrong, "\n".join(wrong)
