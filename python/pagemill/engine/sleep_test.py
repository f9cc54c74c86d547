"""Sleep, wake and weight updates of a model in this process."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")

PROMPT = "Rivers carry water, sand and stories from the mountains to the sea. " * 8
KV_BYTES = 64 << 20


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with make(SMOLLM2, tmp_path_factory.mktemp("cache")) as loaded:
        yield loaded


def make(model: str, cache: Path) -> LLM:
    return LLM(
        model,
        max_model_len=512,
        max_num_seqs=4,
        kv_cache_memory_bytes=KV_BYTES,
        cache_dir=str(cache),
    )


def tokens(llm: LLM) -> list[int]:
    (output,) = llm.generate(PROMPT, temperature=0.0, max_tokens=12)
    return output.choices[0].token_ids


def cached(llm: LLM) -> int:
    (output,) = llm.generate(PROMPT, temperature=0.0, max_tokens=1)
    return output.num_cached_tokens


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("keep_kv", [True, False])
def test_tokens_after_sleep_are_those_of_before(llm: LLM, keep_kv: bool) -> None:
    before = tokens(llm)
    llm.sleep(keep_kv=keep_kv)
    assert llm.is_sleeping
    with pytest.raises(EngineError, match="asleep"):
        tokens(llm)
    llm.wake()
    assert not llm.is_sleeping
    assert (cached(llm) > 0) == keep_kv
    assert tokens(llm) == before


def test_memory_returns_to_the_system(llm: LLM) -> None:
    tokens(llm)
    awake = resident_bytes()
    llm.sleep()
    asleep = resident_bytes()
    llm.wake()
    assert tokens(llm)
    # The weights are 90 MB; how much of the KV cache was in memory depends on the machine.
    assert awake - asleep > 60_000_000
    assert resident_bytes() - asleep > 60_000_000


def changed_copy(path: Path) -> Path:
    """The model with one matrix in place of ten: another model of the same shapes."""
    shutil.copyfile(SMOLLM2, path)
    source = ModelSource.open(path)
    places = [source.tensor(f"model.layers.{i}.mlp.up_proj.weight").offset for i in range(2, 12)]
    size = 576 * 1536 // 32 * 20  # bytes in q4_1
    with path.open("r+b") as file:
        file.seek(places[0])
        one = file.read(size)
        for place in places:
            file.seek(place)
            file.write(one)
    return path


def test_an_update_gives_the_tokens_of_the_other_model_and_back(llm: LLM, tmp_path: Path) -> None:
    before = tokens(llm)
    other = changed_copy(tmp_path / "other.gguf")
    with make(str(other), tmp_path / "cache") as fresh:
        expected = tokens(fresh)
    assert expected != before
    llm.update_weights(other)
    assert cached(llm) == 0
    assert tokens(llm) == expected
    llm.sleep()
    llm.update_weights(SMOLLM2)  # takes effect with wake
    assert llm.is_sleeping
    llm.wake()
    assert tokens(llm) == before


def test_a_checkpoint_that_does_not_fit_changes_nothing(llm: LLM, tmp_path: Path) -> None:
    before = tokens(llm)
    cut = changed_copy(tmp_path / "cut.gguf")
    with cut.open("r+b") as file:
        file.truncate(cut.stat().st_size // 2)
    (tmp_path / "empty.gguf").write_bytes(b"")
    for path in (cut, tmp_path / "empty.gguf", tmp_path / "none.gguf", tmp_path):
        with pytest.raises((WeightsError, EngineError)):
            llm.update_weights(path)
        assert cached(llm) > 0
        assert tokens(llm) == before
