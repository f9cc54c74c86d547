"""Tensors of requests are found in what their libraries write, and nothing else is believed."""

from __future__ import annotations

import io
import random
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save

from pagemill.weights.errors import WeightsError
from pagemill.weights.sent_tensor import SentTensor

ROWS = torch.arange(12.0).reshape(3, 4) / 7


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_types(dtype: torch.dtype) -> None:
    rows = ROWS.to(dtype)
    for data in (saved(rows), saved(torch.nn.Parameter(rows)), save({"any": rows})):
        tensor = SentTensor.read(data)
        assert tensor.shape == (3, 4)
        np.testing.assert_array_equal(tensor.as_f32(), rows.float().numpy())


def test_a_part_of_a_larger_tensor() -> None:
    np.testing.assert_array_equal(SentTensor.read(saved(ROWS[1:])).as_f32(), ROWS[1:].numpy())


def many_entries() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(65):
            archive.writestr(f"a/{i}", b"")
    return file.getvalue()


def large_pickle() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + b"N" * 2**20)
    return file.getvalue()


def compressed_pickle(method: int, said_bytes: int = 1000) -> bytes:
    """An archive whose pickle unpacks to more than it says."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + b"N" * 2**20)
        archive.infolist()[0].file_size = said_bytes
    return file.getvalue()


def far_storage() -> bytes:
    """The numbers are said to begin behind what an offset can be."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(ROWS))) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
        next(e for e in new.infolist() if e.filename.endswith("/data/0")).header_offset = 2**64 - 1
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no safetensors file"),
        (saved({"a": ROWS}), "no tensor, but another value"),
        (saved(ROWS.T), "do not follow each other"),
        (saved(ROWS.double()), "is of f64"),
        (saved(ROWS.int()), "is of i32"),
        (save({}), "0 tensors"),
        (save({"a": ROWS, "b": ROWS.clone()}), "2 tensors"),
        (save({"a": ROWS.int()}), "is of i32"),
        (save({"a" * 5000: ROWS}), "no safetensors file"),
        (many_entries(), "no file of torch.save"),
        (large_pickle(), "more than 4096 bytes of pickle"),
        (compressed_pickle(zipfile.ZIP_DEFLATED), "'a/data.pkl' is compressed"),
        (compressed_pickle(zipfile.ZIP_BZIP2), "'a/data.pkl' is compressed"),
        (compressed_pickle(zipfile.ZIP_LZMA), "'a/data.pkl' is compressed"),
        (compressed_pickle(zipfile.ZIP_STORED), "'a/data.pkl' is compressed"),
        (far_storage(), "cannot be read"),
    ],
)
def test_refusals(data: bytes, words: str) -> None:
    with pytest.raises(WeightsError, match=words):
        SentTensor.read(data)


@pytest.mark.parametrize("data", [saved(ROWS), save({"a": ROWS})])
def test_damage_is_refused_or_harmless(data: bytes) -> None:
    numbers = random.Random(0)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(numbers.randrange(1, 4)):
            at = numbers.randrange(len(damaged))
            if numbers.random() < 0.8:
                damaged[at] = numbers.randrange(256)
            else:
                del damaged[at : at + numbers.randrange(1, 60)]
        try:
            SentTensor.read(bytes(damaged)).as_f32()
        except WeightsError:
            refused += 1
    assert refused > 100
