"""GGUF headers are read as written; corrupt ones end in WeightsError, never otherwise."""

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pagemill.weights import GgufFile, WeightsError


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("a.float", 0.5)
    writer.add_bool("a.bool", True)
    writer.add_array("tokens", ["a", "\u00e9\u4e16", ""])
    writer.add_array("scores", [0.25, -1.0])
    writer.add_array("types", [1, 2, 3])
    writer.add_tensor("f", np.arange(6, dtype=np.float32).reshape(2, 3))
    blocks = np.zeros((4, 2 * 34), np.uint8)
    writer.add_tensor("q", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors(file: Path):
    opened = GgufFile.open(file)
    assert opened.metadata["general.architecture"] == "llama"
    assert opened.metadata["llama.block_count"] == 3
    assert opened.metadata["a.float"] == 0.5 and opened.metadata["a.bool"] is True
    assert opened.metadata["tokens"] == ["a", "\u00e9\u4e16", ""]
    assert opened.metadata["scores"] == [0.25, -1.0] and opened.metadata["types"] == [1, 2, 3]
    assert opened.tensors["q"].dtype == "q8_0" and opened.tensors["q"].shape == (4, 64)
    at = opened.tensors["f"]
    assert (at.dtype, at.shape) == ("f32", (2, 3))
    data = file.read_bytes()[at.offset : at.offset + 24]
    assert np.frombuffer(data, np.float32).tolist() == [0, 1, 2, 3, 4, 5]


def test_every_truncation_is_an_error(file: Path, tmp_path: Path):
    data = file.read_bytes()
    last = max(at.offset for at in GgufFile.open(file).tensors.values()) + 4 * 68
    short = tmp_path / "short.gguf"
    for size in range(0, last, 3):
        short.write_bytes(data[:size])
        with pytest.raises(WeightsError):
            GgufFile.open(short)


@settings(
    max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(st.tuples(st.integers(0, 700), st.binary(min_size=1, max_size=8)), max_size=4)
)
@example(changes=[(8, b"\xff" * 8)])  # the number of tensors
@example(changes=[(16, b"\xff" * 8)])  # the number of metadata entries
@example(changes=[(24, b"\xff\xff\xff\xff\xff\xff\xff\x7f")])  # the length of the first key
def test_corruption_is_an_error_or_harmless(file: Path, tmp_path: Path, changes):
    data = bytearray(file.read_bytes())
    for at, junk in changes:
        data[at : at + len(junk)] = junk
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(data)
    try:
        opened = GgufFile.open(broken)
    except WeightsError as error:
        assert str(broken) in str(error)
        return
    for tensor in opened.tensors.values():
        assert 0 <= tensor.offset <= len(data)


def _header(version: int, tensors: int = 0, entries: int = 0, order: str = "<") -> bytes:
    return b"GGUF" + struct.pack(f"{order}IQQ", version, tensors, entries) + bytes(64)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04" + bytes(100), "does not start with 'GGUF'$"),
        (b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"),
        (_header(1), "version 1 is not supported"),
        (_header(3, order=">"), "big-endian GGUF is not supported"),
        (_header(3, tensors=1 << 40), "cut short or corrupt: 1099511627776 tensors"),
    ],
)
def test_message(tmp_path: Path, data: bytes, message: str):
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(WeightsError, match=message):
        GgufFile.open(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("tensors", "entries", "rest", "message"),
    [
        (2**20, 0, b"", "1048576 tensors announced; at most"),
        (0, 2**20, b"", "1048576 metadata entries announced; at most"),
        (0, 1, struct.pack("<Q", 2**32), "cut short or corrupt: 4294967296 characters"),
        (0, 1, struct.pack("<Q1sIIQ", 1, b"a", 9, 0, 2**25), "numbers announced; at most"),
        (0, 1, struct.pack("<Q1sIIQQ", 1, b"a", 9, 8, 1, 2**32), "a string ends beyond byte"),
        (0, 1, struct.pack("<Q1sIIQ", 1, b"a", 9, 9, 2**36), "cut short or corrupt"),
    ],
)
def test_a_size_that_costs_the_file_nothing_costs_the_reader_nothing(
    tmp_path: Path, tensors: int, entries: int, rest: bytes, message: str
):
    """A sparse file can have any size."""
    path = tmp_path / "x.gguf"
    path.write_bytes(_header(3, tensors, entries)[:24] + rest)
    with path.open("r+b") as file:
        file.truncate(2**38)
    begin = time.process_time()
    with pytest.raises(WeightsError, match=message):
        GgufFile.open(path)
    assert time.process_time() - begin < 1


def test_unsupported_tensor_type_is_named(tmp_path: Path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    blocks = np.zeros((2, 292), np.uint8)
    writer.add_tensor("w", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(WeightsError, match="'w' is stored as GGML type q8_k; supported: bf16"):
        GgufFile.open(tmp_path / "x.gguf")


def test_large_vocabularies_are_read_fast(tmp_path: Path):
    """262,144 tokens: a second on a slow machine; a reader that calls a method for each takes 5."""
    count = 262_144
    strings = b"".join(struct.pack("<Q", 8) + b"%08d" % i for i in range(count))
    entry = struct.pack("<Q", 6) + b"tokens" + struct.pack("<IIQ", 9, 8, count) + strings
    (tmp_path / "big.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
    start = time.perf_counter()
    opened = GgufFile.open(tmp_path / "big.gguf")
    elapsed = time.perf_counter() - start
    assert opened.metadata["tokens"][-1] == f"{count - 1:08d}"
    assert elapsed < 2.5
