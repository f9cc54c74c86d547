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
from pagemill.weights.location import TensorLocation
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file


def rounded(path: Path, name: str, folder: Path) -> ModelSource:
    """The checkpoint at `path` with matrices in the format `name`, in a file in `folder`."""
    source = ModelSource.open(path)
    at_load = LoadQuantization(name, str(folder))
    return quantize(source, at_load, lambda: matrices_to_quantize(source), sys.stderr)


def chosen_matrices(path: Path) -> Sequence[TensorLocation]:
    """What is rounded of the checkpoint at `path`."""
    return matrices_to_quantize(ModelSource.open(path))


def write_values(path: Path, source: ModelSource, directory: Path) -> None:
    """Writes to `directory` the checkpoint at `path`, in one file, with the values of `source`, in
    which its matrices are rounded."""
    tensors = load_file(path / "model.safetensors")
    for tensor in chosen_matrices(path):
        module, shape = tensor.name.removesuffix(".weight"), tensor.shape[-2:]
        modules = [module]
        if len(tensor.shape) == 3:
            modules = [f"{module}.{i}" for i in range(tensor.shape[0])]
        if source.has(tensor.name) and source.tensor(tensor.name) == tensor:
            continue  # it stayed as it is
        values = np.stack([read_matrix(source, module, shape) for module in modules])
        tensors[tensor.name] = torch.from_numpy(values.reshape(tensor.shape))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text((path / "config.json").read_text())
