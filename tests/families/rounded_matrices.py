"""A checkpoint whose matrices are rounded at load, and one of the values that they stand for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from pagemill.config.load_quantization import LoadQuantization
from pagemill.quantization.at_load.quantized_source import quantize
from pagemill.quantization.at_load.testing.decoded import read_matrix
from pagemill.runner.build import matrices_to_quantize
from pagemill.weights.safetensors import read_directory
from pagemill.weights.source import ModelSource
from pagemill.weights.stored_matrix import StoredMatrix
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel


def rounded(
    path: Path,
    name: str,
    folder: Path,
    ignored: Sequence[str] = (),
    targets: Sequence[tuple[str, str]] = (),
) -> ModelSource:
    """The checkpoint at `path` with matrices in the format `name`, in a file in `folder`; without
    the modules that `ignored` lists, and with those of `targets` in their formats."""
    source = ModelSource.open(path)
    at_load = LoadQuantization(name, str(folder), tuple(ignored), tuple(targets))
    return quantize(source, at_load, lambda: matrices_to_quantize(source), sys.stderr)


def chosen_matrices(path: Path) -> Sequence[StoredMatrix]:
    """What is rounded of the checkpoint at `path`."""
    return matrices_to_quantize(ModelSource.open(path))


def write_values(path: Path, source: ModelSource, directory: Path) -> None:
    """Writes to `directory` the checkpoint at `path`, in one file, with the values of `source`, in
    which its matrices are rounded."""
    tensors = load_file(path / "model.safetensors")
    # Layers may use other names than those of the file.
    stored = {tensor.offset: name for name, tensor in read_directory(path).items()}
    for matrix in chosen_matrices(path):
        name, shape = matrix.tensor.name, matrix.shape[-2:]
        if source.has(name) and source.tensor(name) == matrix.tensor:
            continue  # it stayed as it is
        modules = [each.module for each in matrix.divided()]
        values = np.stack([read_matrix(source, module, shape) for module in modules])
        if matrix.transposed:
            values = np.ascontiguousarray(values.swapaxes(1, 2))
        tensors[stored[matrix.tensor.offset]] = torch.from_numpy(
            values.reshape(matrix.tensor.shape)
        )
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text((path / "config.json").read_text())


def reference(path: Path, source: ModelSource) -> PreTrainedModel:
    """What `transformers` makes, in f32, of the values of `source`; see `write_values`."""
    values = path.parent / "values"
    values.mkdir()
    write_values(path, source, values)
    return AutoModelForCausalLM.from_pretrained(
        values, dtype=torch.float32, attn_implementation="eager"
    ).eval()
