"""Encoders with layers behind them, as sentence-transformers, PyLate, ColBERT and BGE-M3 save them,
and what the layers make of vectors of tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pagemill.inputs.task import Task
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize
from transformers import CONFIG_MAPPING, AutoModelForMaskedLM, PreTrainedModel

from tests.families import families
from tests.families.encoders import ENCODERS, make
from tests.families.families import randomize
from tests.families.family import SIZES
from tests.families.word_tokenizer import save_tokenizer

_SENTENCE_TRANSFORMERS = "sentence_transformers.models"


@dataclass(frozen=True)
class Headed:
    """A saved model: `rows` of the vectors [tokens, width] of a text's tokens, or of logits; those
    of tokens STEP_TAG if it is `by_step`."""

    model: PreTrainedModel
    task: Task
    rows: Callable[[Tensor], Tensor]
    by_step: bool = False

    @torch.no_grad()
    def expected(self, token_ids: list[int]) -> Tensor:
        outputs = self.model(torch.tensor([token_ids]))
        name = "logits" if "logits" in outputs else "last_hidden_state"
        rows = self.rows(outputs[name][0])
        return rows[torch.tensor(token_ids) == STEP_TAG] if self.by_step else rows


def _modules(path: Path, *modules: tuple[str, str, Mapping[str, Any]]) -> None:
    """Writes modules.json and the configurations of modules: type, folder, fields."""
    listed = [
        {"idx": index, "name": str(index), "path": folder, "type": kind}
        for index, (kind, folder, _) in enumerate(modules)
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    for _, folder, fields in modules:
        if folder:
            (path / folder).mkdir()
            (path / folder / "config.json").write_text(json.dumps(dict(fields)))


def _linear(inputs: int, size: int, *, bias: bool = True) -> torch.nn.Linear:
    layer = torch.nn.Linear(inputs, size, bias=bias)
    torch.nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer


def _state(layer: torch.nn.Linear, prefix: str = "linear.") -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in layer.state_dict().items()}


def dense(path: Path) -> Headed:
    """Two Dense modules of sentence-transformers behind a mean, in files of both kinds."""
    model = make("bert", Task.TOKEN_EMBED, path)
    first, second = _linear(96, 40), _linear(40, 24, bias=False)
    _modules(
        path,
        (f"{_SENTENCE_TRANSFORMERS}.Transformer", "", {}),
        (f"{_SENTENCE_TRANSFORMERS}.Pooling", "1_Pooling", {"pooling_mode_mean_tokens": True}),
        (f"{_SENTENCE_TRANSFORMERS}.Dense", "2_Dense", _dense_fields(first, "activation.Tanh")),
        (f"{_SENTENCE_TRANSFORMERS}.Dense", "3_Dense", _dense_fields(second, "linear.Identity")),
        (f"{_SENTENCE_TRANSFORMERS}.Normalize", "4_Normalize", {}),
    )
    save_file(_state(first), path / "2_Dense" / "model.safetensors")
    torch.save(_state(second), path / "3_Dense" / "pytorch_model.bin")
    return Headed(
        model, Task.EMBED, lambda x: normalize(second(torch.tanh(first(x.mean(0)))), dim=-1)
    )


def _dense_fields(layer: torch.nn.Linear, activation: str) -> dict[str, Any]:
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "bias": layer.bias is not None,
        "activation_function": f"torch.nn.modules.{activation}",
    }


def pylate(path: Path) -> Headed:
    """A layer behind the vectors of tokens, and no pooling."""
    model = make("modernbert", Task.TOKEN_EMBED, path)
    layer = _linear(96, 24, bias=False)
    _modules(
        path,
        (f"{_SENTENCE_TRANSFORMERS}.Transformer", "", {}),
        ("pylate.models.Dense.Dense", "1_Dense", _dense_fields(layer, "linear.Identity")),
    )
    save_file(_state(layer), path / "1_Dense" / "model.safetensors")
    return Headed(model, Task.TOKEN_EMBED, lambda x: normalize(layer(x), dim=-1))


def colbert(path: Path) -> Headed:
    """The layer as a tensor of the checkpoint."""
    model = make("bert", Task.TOKEN_EMBED, path)
    layer = _linear(96, 24, bias=False)
    file = path / "model.safetensors"
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(file).items()}
    save_file(tensors | _state(layer), file)
    _configure(path, "HF_ColBERT", {})
    return Headed(model, Task.TOKEN_EMBED, lambda x: normalize(layer(x), dim=-1))


def bge_m3(path: Path, task: Task = Task.EMBED) -> Headed:
    """BGE-M3 for one of its three tasks, as FlagEmbedding computes them."""
    model = make("xlm_roberta", Task.TOKEN_EMBED, path)
    of_tokens, weights = _linear(96, 96), _linear(96, 1)
    torch.save(_state(of_tokens, ""), path / "colbert_linear.pt")
    torch.save(_state(weights, ""), path / "sparse_linear.pt")
    _modules(
        path,
        (f"{_SENTENCE_TRANSFORMERS}.Transformer", "", {}),
        (f"{_SENTENCE_TRANSFORMERS}.Pooling", "1_Pooling", {"pooling_mode_cls_token": True}),
        (f"{_SENTENCE_TRANSFORMERS}.Normalize", "2_Normalize", {}),
    )
    rows: dict[Task, Callable[[Tensor], Tensor]] = {
        Task.EMBED: lambda x: normalize(x[0], dim=-1),
        Task.TOKEN_EMBED: lambda x: normalize(of_tokens(x[1:]), dim=-1),
        Task.TOKEN_CLASSIFY: lambda x: weights(x).relu(),
    }
    return Headed(model, task, rows[task])


def llama_bidirectional(path: Path, task: Task = Task.EMBED) -> Headed:
    """NVIDIA's embedder, or its reranker."""
    model = make("llama", Task.TOKEN_EMBED, path, labels=1, changes={"is_causal": False})
    kind = "Model" if task is Task.EMBED else "ForSequenceClassification"
    keys = {"is_causal": None, "pooling": "avg", "temperature": 0.4}
    _configure(path, f"LlamaBidirectional{kind}", keys)
    if task is Task.EMBED:
        return Headed(model, task, lambda x: normalize(x.mean(0), dim=-1))
    head, file = _linear(96, 1, bias=False), path / "model.safetensors"
    tensors = {f"model.{name}": tensor for name, tensor in load_file(file).items()}
    save_file(tensors | _state(head, "score."), file)
    return Headed(model, task, lambda x: (head(x.mean(0)) / 0.4).sigmoid())


STEP_TAG = 8


def step_rewards(path: Path, tokens: tuple[int, ...] = ()) -> Headed:
    """Scores behind each step of a solution: as Qwen2's process reward models, by a head of their
    own, or of a language model by the logits of `tokens`."""
    model = families.make("qwen2", path)
    save_tokenizer(path)
    keys: dict[str, Any] = {"step_tag_id": STEP_TAG}
    if tokens:
        keys["classifier_from_token"] = [f"w{token}" for token in tokens]
        _configure(path, "Qwen2ForTokenClassification", keys)
        return Headed(model, Task.TOKEN_CLASSIFY, lambda x: x[:, list(tokens)].softmax(-1), True)
    head = _reward_head(path, 2)
    _configure(path, "Qwen2ForProcessRewardModel", keys)
    return Headed(model.base_model, Task.TOKEN_CLASSIFY, lambda x: head(x).softmax(-1), True)


def rewards(path: Path) -> Headed:
    """A score for each token, as Qwen2's reward models."""
    model, head = families.make("qwen2", path), _reward_head(path, 1)
    _configure(path, "Qwen2ForRewardModel", {})
    return Headed(model.base_model, Task.TOKEN_CLASSIFY, head)


def internlm2_rewards(path: Path) -> Headed:
    """A score for each token, as InternLM2's reward models."""
    model, head = families.make("internlm2", path), _linear(96, 1, bias=False)
    file = path / "model.safetensors"
    tensors = {name: t for name, t in load_file(file).items() if not name.startswith("output")}
    save_file(tensors | _state(head, "v_head."), file)
    _configure(path, "InternLM2ForRewardModel", {})
    return Headed(model.base_model, Task.TOKEN_CLASSIFY, head)


def _reward_head(path: Path, size: int) -> torch.nn.Sequential:
    head = torch.nn.Sequential(_linear(96, 96), torch.nn.ReLU(), _linear(96, size))
    file = path / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(file).items() if "lm_head" not in name}
    save_file(tensors | {f"score.{name}": t for name, t in head.state_dict().items()}, file)
    return head


def _configure(path: Path, architecture: str, keys: Mapping[str, Any]) -> None:
    file = path / "config.json"
    config = json.loads(file.read_text()) | {"architectures": [architecture]} | dict(keys)
    file.write_text(json.dumps(config))


CALIBRATION = {"logit_mean": 0.4, "logit_sigma": 2.5}


def calibrated(path: Path) -> Headed:
    """A cross-encoder whose logits are calibrated before their sigmoid."""
    model = make("bert", Task.CLASSIFY, path, labels=1)
    _configure(path, "BertForSequenceClassification", CALIBRATION)
    mean, sigma = CALIBRATION.values()
    return Headed(model, Task.CLASSIFY, lambda x: ((x - mean) / sigma).sigmoid())


def splade(path: Path, name: str = "bert", *, modules: bool = True) -> Headed:
    """A masked language model, and what sentence-transformers writes beside it."""
    torch.manual_seed(0)
    row = ENCODERS[name]
    kind = CONFIG_MAPPING[row.model_type]
    known = kind().to_dict().keys()
    fields = {key: value for key, value in SIZES.items() if key in known} | dict(row.changes)
    made: object = AutoModelForMaskedLM.from_config(kind(**fields), attn_implementation="eager")
    assert isinstance(made, PreTrainedModel)
    model = made.eval()
    randomize(model)
    model.save_pretrained(path)
    if modules:
        sparse = "sentence_transformers.sparse_encoder.models"
        fields = {"pooling_strategy": "max", "activation_function": "relu"}
        _modules(
            path, (f"{sparse}.MLMTransformer", "", {}), (f"{sparse}.SpladePooling", "1_S", fields)
        )
    return Headed(model, Task.EMBED, lambda x: x.relu().log1p().amax(0))


def qwen3_reranker(path: Path, tokens: tuple[int, int], *, opposed: bool = True) -> Headed:
    """A language model that says "no" or "yes", with the keys that make a classifier of it; the
    tokenizer calls `tokens` w<id>."""
    model = families.make("qwen3", path)
    names = [f"w{token}" for token in tokens]
    keys = {"classifier_from_token": names, "is_original_qwen3_reranker": opposed}
    _configure(path, "Qwen3ForSequenceClassification", keys)
    save_tokenizer(path)

    def rows(logits: Tensor) -> Tensor:
        found = logits[-1, list(tokens)]
        # A softmax over both is a sigmoid of the difference.
        return found.softmax(-1)[1:] if opposed else found.softmax(-1)

    return Headed(model, Task.CLASSIFY, rows)
