"""A model in several GGUF files is one model; what does not fit is an error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pagemill.weights import ModelSource, WeightsError
from pagemill.weights.gguf_split import open_model, split_names
from pagemill.weights.read import read_f32

FIRST = "m-00001-of-00002.gguf"
SECOND = "m-00002-of-00002.gguf"


def _write(path: Path, tensor: str, keys: Mapping[str, Any]) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    for key, value in keys.items():
        writer.add_uint16(f"split.{key}", value)
    writer.add_tensor(tensor, np.full((8, 32), len(tensor), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _pair(folder: Path, *, second: str = "output.weight", **keys: int) -> Path:
    _write(folder / FIRST, "token_embd.weight", {"no": 0, "count": 2, **keys})
    _write(folder / SECOND, second, {"no": 1, "count": 2})
    return folder / FIRST


def test_tensors_of_all_files(tmp_path: Path):
    source = ModelSource.open(_pair(tmp_path))
    assert not source.config["tie_word_embeddings"]
    for name, stored in (("lm_head", "output"), ("model.embed_tokens", "token_embd")):
        location = source.tensor(f"{name}.weight")
        assert (read_f32(location) == len(f"{stored}.weight")).all()
    assert Path(source.tensor("lm_head.weight").file).name == SECOND


def test_names():
    assert split_names("m.gguf") == ["m.gguf"]
    assert split_names(FIRST) == [FIRST, SECOND]
    assert split_names(SECOND) == [SECOND]
    assert len(split_names("m-00001-of-99999.gguf")) == 1


def test_what_does_not_fit(tmp_path: Path):
    first = _pair(tmp_path)
    with pytest.raises(WeightsError, match="give the first"):
        open_model(tmp_path / SECOND)
    with pytest.raises(WeightsError, match="give the first"):
        open_model(first.rename(tmp_path / "m.gguf"))
    with pytest.raises(WeightsError, match="not file 2"):
        open_model(_pair(tmp_path, second="token_embd.weight"))
    first = _pair(tmp_path)
    with pytest.raises(WeightsError, match="not file 2"):
        _write(tmp_path / SECOND, "output.weight", {"no": 0, "count": 2})
        open_model(first)
    (tmp_path / SECOND).unlink()
    with pytest.raises(OSError):
        open_model(first)
