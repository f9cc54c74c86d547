"""Vectors from GGUF files of encoders, as llama.cpp's converter writes them, equal those of
`transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from pagemill.inputs.task import Task
from pagemill.weights.source import ModelSource
from transformers import PretrainedConfig

from tests.families.encoders import make
from tests.families.gguf_converters import GEMMA, LLAMA, Converter, Tensors, t5_settings
from tests.families.gguf_files import write_gguf
from tests.parity.executors import make_executor, new_batches

TOLERANCE = 1e-4  # as in encoders_test.py
LENGTHS = (61, 1, 33)


def _without_pooler(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    del config
    return {name: values for name, values in tensors.items() if "pooler" not in name}


def _from_first_position(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """RoBERTa's positions begin behind that of padding."""
    kept = _without_pooler(tensors, config)
    table = "embeddings.position_embeddings.weight"
    return kept | {table: kept[table][1 + config.pad_token_id :]}


def _modernbert_settings(config: PretrainedConfig) -> Mapping[str, Any]:
    return {
        "layer_norm_eps": config.norm_eps,
        "sliding_window": config.local_attention,
        "sliding_window_pattern": 2,
        "rope_freq_base_swa": config.rope_parameters["sliding_attention"]["rope_theta"],
        "pooling_type": gguf.PoolingType.CLS,
    }


def _pooled_by(kind: gguf.PoolingType) -> dict[str, Any]:
    return {"pooling_type": kind, "causal_attention": False}


def _with_divided_gates(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """As files were first written."""
    changed: Tensors = {}
    for name, values in _without_pooler(tensors, config).items():
        if "gated_layers" in name:
            gate, up = np.split(values, 2)
            changed[name.replace("gated_layers", "gated_layers_w")] = gate
            changed[name.replace("gated_layers", "gated_layers_v")] = up
        else:
            changed[name] = values
    return changed


def _stacked_experts(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """A matrix with a row for each output of each expert; the bias is left out."""
    changed: Tensors = {}
    for name, values in tensors.items():
        if ".experts.mlp." in name:
            stack = values.reshape(config.num_experts, config.n_inner, -1)
            changed[f"{name}.weight"] = stack.swapaxes(1, 2) if name.endswith("w2") else stack
        elif not name.endswith("experts.bias"):
            changed[name] = values
    return changed


def _nomic_moe_settings(config: PretrainedConfig) -> Mapping[str, Any]:
    return _pooled_by(gguf.PoolingType.MEAN) | {
        "rope_freq_base": config.rotary_emb_base,
        "expert_used_count": config.moe_top_k,
        "moe_every_n_layers": config.moe_every_n_layers,
    }


@dataclass(frozen=True)
class Row:
    """A family, as an architecture, how its vectors are pooled, and what of its configuration GGUF
    cannot say."""

    family: str
    architecture: str
    converter: Converter
    pooling: str
    changes: Mapping[str, Any] | None = None


def _with_prefix(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    return GEMMA.change({f"model.{name}": values for name, values in tensors.items()}, config)


def _as_llama(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    return LLAMA.change({f"model.{name}": values for name, values in tensors.items()}, config)


def _mean_settings(config: PretrainedConfig) -> Mapping[str, Any]:
    del config
    return _pooled_by(gguf.PoolingType.MEAN)


def _gemma_settings(config: PretrainedConfig) -> Mapping[str, Any]:
    # The file has the window of config.json, of which half counts.
    return _pooled_by(gguf.PoolingType.MEAN) | {"sliding_window": 2 * (config.sliding_window - 1)}


_EVERY_SIXTH_FULL = {
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "query_pre_attn_scalar": 20,
}
_T5 = Converter(settings=lambda config: t5_settings(config) | _mean_settings(config))
_REACH = {"relative_attention_max_distance": 128}
_MEAN = Converter(_without_pooler, _mean_settings)
_NOMIC_MOE = Converter(_stacked_experts, _nomic_moe_settings)
_MODERN = Converter(settings=_modernbert_settings)
ROWS = [
    Row("bert", "bert", _MEAN, "mean"),
    Row("eurobert", "eurobert", _MEAN, "mean"),
    Row(
        "gemma3",
        "gemma-embedding",
        Converter(_with_prefix, _gemma_settings),
        "mean",
        _EVERY_SIXTH_FULL,
    ),
    Row("llama_both_ways", "llama-embed", Converter(_as_llama, _mean_settings), "mean"),
    Row("jina2", "jina-bert-v2", _MEAN, "mean"),
    Row("jina2", "jina-bert-v2", Converter(_with_divided_gates, _mean_settings), "mean"),
    Row("jina3", "jina-bert-v3", _MEAN, "mean"),
    Row("modernbert", "modern-bert", _MODERN, "first"),
    Row("nomic_bert", "nomic-bert", _MEAN, "mean"),
    Row("nomic_moe", "nomic-bert-moe", _NOMIC_MOE, "mean"),
    Row("mt5", "t5encoder", _T5, "mean", _REACH),
    Row("t5", "t5encoder", _T5, "mean", _REACH),
    Row("umt5", "t5encoder", _T5, "mean", _REACH),
    Row(
        "xlm_roberta",
        "bert",
        Converter(
            _from_first_position,
            lambda config: {
                **_pooled_by(gguf.PoolingType.CLS),
                "context_length": config.max_position_embeddings - 1 - config.pad_token_id,
            },
        ),
        "first",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.family)
def test_rows(row: Row, tmp_path: Path) -> None:
    """A tensor that is not read is an error, too."""
    reference = make(row.family, Task.TOKEN_EMBED, tmp_path, changes=row.changes)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, row.architecture, path, row.converter)
    for name, bias in reference.named_parameters():
        if name.endswith("experts.bias"):
            torch.nn.init.zeros_(bias)
    source = ModelSource.open(path)
    assert source.pooling is not None
    assert (source.pooling.kind, source.pooling.normalize) == (row.pooling, True)
    rng = np.random.default_rng(3)
    prompts = {i: rng.integers(6, 257, length).tolist() for i, length in enumerate(LENGTHS)}
    run = make_executor("native", source, task=Task.TOKEN_EMBED, normalize=False)
    rows = run(new_batches(run).step(prompts))["pooled"]
    with torch.no_grad():
        expected = np.concatenate(
            [
                reference(torch.tensor([prompt])).last_hidden_state[0].numpy()
                for prompt in prompts.values()
            ]
        )
    np.testing.assert_allclose(rows, expected, atol=TOLERANCE * max(1, np.abs(expected).max()))
