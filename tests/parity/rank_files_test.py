"""Grok-2 in the files that it was published in: experts in the parts of ranks, all else whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from pagemill.runner.build import BuildOptions
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.families.divided import check_ranks
from tests.families.families import make
from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import OneRequest, difference

TOLERANCE = 1e-4  # tests/families/families_test.py
RANKS = 3
_EXPERT = re.compile(r".*\.experts\.\d+\.(w\d)\.weight")


def _published(directory: Path) -> PreTrainedModel:
    reference = make("grok2", directory)
    file = directory / "model.safetensors"
    common, parts = dict[str, torch.Tensor](), [dict[str, torch.Tensor]() for _ in range(RANKS)]
    for name, tensor in load_file(file).items():
        if (match := _EXPERT.fullmatch(name)) is None:
            common[name] = tensor
            continue
        chunks = tensor.chunk(RANKS, dim=1 if match[1] == "w2" else 0)
        for part, chunk in zip(parts, chunks, strict=True):
            part[name] = chunk.contiguous()
    file.unlink()
    # A layer's tensors may be in any of the files of a rank.
    for rank, part in enumerate(parts):
        for number in range(2):
            some = {name: part[name] for name in sorted(part)[number::2]}
            save_file(some, directory / f"pytorch_model-0000{number}-TP-{rank:03}.safetensors")
    save_file(common, directory / "pytorch_model-00002-TP-common.safetensors")
    return reference


@pytest.mark.parametrize("kind", EXECUTORS)
def test_parts_of_ranks(kind: str, tmp_path: Path) -> None:
    reference = _published(tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= TOLERANCE


@pytest.mark.parametrize("whole_experts", [False, True])
def test_other_ranks_than_saved_it(whole_experts: bool, tmp_path: Path) -> None:
    """Two take three parts: the one in the middle is divided, or experts have all of them."""
    request = OneRequest(_published(tmp_path))
    source = ModelSource.open(tmp_path)
    check_ranks(
        source,
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / TOLERANCE,
        whole_experts=whole_experts,
    )


def test_files_of_a_rank_that_are_missing(tmp_path: Path) -> None:
    _published(tmp_path)
    file = tmp_path / "pytorch_model-00000-TP-001.safetensors"
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(WeightsError, match=r"is not in the files of each rank alone.* rank 1"):
        ModelSource.open(tmp_path)
    (tmp_path / "pytorch_model-00001-TP-001.safetensors").unlink()
    with pytest.raises(WeightsError, match="has files of the ranks 000, 002, not of 0, 1"):
        ModelSource.open(tmp_path)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    _published(tmp_path)
    name = "pytorch_model-0000{}-TP-002.safetensors"
    (tmp_path / name.format(3)).write_bytes((tmp_path / name.format(0)).read_bytes())
    with pytest.raises(WeightsError, match="is in another file, too"):
        ModelSource.open(tmp_path)
