"""Whisper checkpoints of CTranslate2 (`model.bin`) as `transformers` saves them.

    convert(Path("model.bin").read_bytes(), Path("tokenizer.json"), Path("whisper-tiny.en"))

A file is little-endian: a version, the model's name and revision; a number of tensors, each with a
name, dimensions, a type, and its bytes; names that are other names of tensors. q, k and v of a
layer, and k and v of its cross attention, are one matrix each.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_NORM = {"gamma": "weight", "beta": "bias"}
_PARTS = {  # of a layer: the name in front of a norm or linear layer, and its parts
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f"<{kind}", self._data, self._at)
        self._at += struct.calcsize(kind)
        return value

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.take(self.number("H")).rstrip(b"\0").decode()


def read_tensors(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a `model.bin`, by name."""
    reader = _Reader(data)
    reader.number("I"), reader.text(), reader.number("I")
    tensors: dict[str, np.ndarray] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        dtype = _TYPES[reader.number("B")]
        tensors[name] = np.frombuffer(reader.take(reader.number("I")), dtype).reshape(shape)
    return tensors


def convert(data: bytes, tokenizer: Path, to: Path) -> None:
    """Writes the checkpoint whose `model.bin` has the bytes `data` to the folder `to`."""
    tensors = read_tensors(data)
    saved: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        for part, value in _named(name, tensor):
            saved[f"model.{part}"] = np.ascontiguousarray(value)
    to.mkdir(parents=True, exist_ok=True)
    save_file(saved, to / "model.safetensors", {"format": "pt"})
    (to / "config.json").write_text(json.dumps(_config(tensors)))
    extractor = {"feature_extractor_type": "WhisperFeatureExtractor"}
    (to / "preprocessor_config.json").write_text(json.dumps(extractor))
    shutil.copy(tokenizer, to / "tokenizer.json")


def _named(name: str, tensor: np.ndarray) -> list[tuple[str, np.ndarray]]:
    side, _, rest = name.partition("/")
    if rest.startswith("conv"):
        return [(f"{side}.{rest.replace('/', '.')}", tensor)]
    if rest == "embeddings/weight":
        return [("decoder.embed_tokens.weight", tensor)]
    if rest == "position_encodings/encodings":
        return [(f"{side}.embed_positions.weight", tensor)]
    if rest.startswith("layer_norm/"):
        return [(f"{side}.layer_norm.{_NORM[rest.partition('/')[2]]}", tensor)]
    if not rest.startswith("layer_"):
        return []  # settings
    layer, _, inner = rest.partition("/")
    module, _, kind = inner.rpartition("/")
    parts = _PARTS[module]
    prefix = f"{side}.layers.{layer.removeprefix('layer_')}"
    kind = _NORM.get(kind, kind)
    return [
        (f"{prefix}.{part}.{kind}", value)
        for part, value in zip(parts, np.split(tensor, len(parts)), strict=True)
        if not (part.endswith("k_proj") and kind == "bias")  # zeros
    ]


def _config(tensors: dict[str, np.ndarray]) -> dict[str, object]:
    vocab_size, width = tensors["decoder/embeddings/weight"].shape
    english = vocab_size == 51864
    end = 50256 if english else 50257
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "vocab_size": vocab_size,
        "d_model": width,
        "num_mel_bins": tensors["encoder/conv1/weight"].shape[1],
        "encoder_layers": _layers(tensors, "encoder"),
        "decoder_layers": _layers(tensors, "decoder"),
        "encoder_attention_heads": int(tensors["encoder/num_heads"]),
        "decoder_attention_heads": int(tensors["decoder/num_heads"]),
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "max_source_positions": len(tensors["encoder/position_encodings/encodings"]),
        "max_target_positions": len(tensors["decoder/position_encodings/encodings"]),
        "activation_function": "gelu",
        "pad_token_id": end,
        "bos_token_id": end,
        "eos_token_id": end,
        "decoder_start_token_id": end + 1,
        "is_encoder_decoder": True,
        "torch_dtype": "float16",
    }


def _layers(tensors: dict[str, np.ndarray], side: str) -> int:
    suffix = "/ffn/linear_0/weight"
    return sum(name.startswith(f"{side}/layer_") and name.endswith(suffix) for name in tensors)
