"""Checkpoints with random weights, made by `transformers`: their speed is that of trained ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    Mamba2Config,
    Mamba2ForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

_VOCABULARY = 32_000
WORDS = [f"w{i}" for i in range(5_000)]  # of the texts for `minilm`


def _moe() -> PreTrainedModel:
    """0.3 B parameters of 1.5 B are read for a token: 8 of 64 experts.

    With the files of SmolLM2's tokenizer in its folder, servers and converters take it.
    """
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=49_152,
            hidden_size=1024,
            intermediate_size=2048,
            moe_intermediate_size=448,
            num_hidden_layers=16,
            num_attention_heads=16,
            num_key_value_heads=4,
            head_dim=64,
            num_experts=64,
            num_experts_per_tok=8,
            norm_topk_prob=True,
            tie_word_embeddings=False,
        )
    )


def _mamba2() -> PreTrainedModel:
    return Mamba2ForCausalLM(
        Mamba2Config(
            vocab_size=_VOCABULARY,
            hidden_size=1024,
            num_hidden_layers=40,
            num_heads=32,
            head_dim=64,
            state_size=128,
            n_groups=1,
            expand=2,
            tie_word_embeddings=True,
        )
    )


def _qwen3_next() -> PreTrainedModel:
    """Three layers of the gated delta rule for each of attention, and no experts."""
    layers = 20
    return Qwen3NextForCausalLM(
        Qwen3NextConfig(
            vocab_size=_VOCABULARY,
            hidden_size=1024,
            intermediate_size=2048,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=128,
            linear_num_key_heads=8,
            linear_num_value_heads=16,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            mlp_only_layers=list(range(layers)),
            num_experts=0,
            tie_word_embeddings=True,
        )
    )


def _minilm() -> PreTrainedModel:
    """The sizes of all-MiniLM-L6-v2."""
    return BertModel(
        BertConfig(
            vocab_size=30_522,
            hidden_size=384,
            intermediate_size=1536,
            num_hidden_layers=6,
            num_attention_heads=12,
        )
    )


DECODERS: dict[str, Callable[[], PreTrainedModel]] = {
    "moe": _moe,
    "mamba2": _mamba2,
    "qwen3-next": _qwen3_next,
}


def checkpoint(name: str, folder: Path) -> Path:
    """The checkpoint `name` in `folder`, in bf16; it is made at its first use."""
    path = folder / name
    if (path / "config.json").exists():
        return path
    torch.manual_seed(0)
    model = DECODERS[name]() if name in DECODERS else _minilm()
    if name not in DECODERS:
        _write_tokenizer(path)
    model.to(torch.bfloat16).save_pretrained(path)
    return path


def _write_tokenizer(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (path / "vocab.txt").write_text("\n".join([*special, *WORDS]))
    BertTokenizerFast(str(path / "vocab.txt")).save_pretrained(path)
