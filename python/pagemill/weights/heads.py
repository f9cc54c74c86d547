"""Tensors of layers that lie beside a model's own: `Dense` modules of sentence-transformers, and
the two layers of BGE-M3."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.pooling import DENSE, Pooling
from pagemill.weights.safetensors import SINGLE_FILE, read_file
from pagemill.weights.torch_file import read_torch_file

COLBERT, SPARSE = "colbert_linear", "sparse_linear"
"""Of vectors and weights of tokens: `<name>.safetensors` or `<name>.pt`."""
HEADS = (f"{COLBERT}.", f"{SPARSE}.", DENSE)
"""In front of the names of all."""


def read_heads(directory: Path, pooling: Pooling | None) -> dict[str, TensorLocation]:
    """The tensors of the `dense` layers of `pooling`, and of BGE-M3's if there are files of them.

    Raises:
        WeightsError: a file is corrupt, or a Dense module has none.
        OSError: a file cannot be read.
    """
    found: dict[str, TensorLocation] = {}
    for dense in () if pooling is None else pooling.dense:
        folder = directory / dense.folder
        tensors = _either(folder / SINGLE_FILE, folder / "pytorch_model.bin")
        if tensors is None:
            raise WeightsError(f"{folder} has neither {SINGLE_FILE} nor pytorch_model.bin")
        found |= _named(dense.module.removesuffix("linear"), tensors)
    for name in (COLBERT, SPARSE):
        tensors = _either(directory / f"{name}.safetensors", directory / f"{name}.pt")
        found |= _named(f"{name}.", tensors or {})
    return found


def _either(safetensors: Path, torch_file: Path) -> dict[str, TensorLocation] | None:
    if safetensors.exists():
        return read_file(safetensors)
    return read_torch_file(torch_file) if torch_file.exists() else None


def _named(prefix: str, tensors: dict[str, TensorLocation]) -> dict[str, TensorLocation]:
    return {
        prefix + name: replace(location, name=prefix + name) for name, location in tensors.items()
    }
