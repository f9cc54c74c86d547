"""Marks in generated texts, with a real model: found with the key, and with no other one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagemill import _native
from pagemill.config import ConfigError, WatermarkConfig
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.engine.watermark import detect, load_watermark

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
needs_model = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
PROMPTS = ["The history of the city begins", "Dear Sir or Madam,", "Once upon a time"]
FIELDS: dict[str, Any] = {"max_tokens": 100, "ignore_eos": True, "temperature": 1.0, "seed": 7}


def key_file(folder: Path, secret: str = "a secret of the operator") -> str:
    path = folder / "key"
    path.write_text(secret + "\n")
    return str(path)


def test_p_values_are_those_of_a_gamma_distribution() -> None:
    class Numbers:
        def __init__(self, *numbers: float) -> None:
            self.numbers_of = lambda token_ids: list(numbers)

    def of(*numbers: float) -> Any:
        return detect(Numbers(*numbers), [])  # type: ignore[arg-type]

    assert of() == (0, 0.0, 1.0)
    assert of(0.75).p_value == pytest.approx(0.25)
    # 1 - P(2, x) of x = -2 log(0.1): e^-x (1 + x).
    assert of(0.9, 0.9).p_value == pytest.approx(0.01 * (1 + 4.60517), rel=1e-5)
    assert of(*[0.5] * 1000).p_value == pytest.approx(1, abs=1e-6)
    assert 0 < of(*[1 - 1e-9] * 100).p_value < 1e-300 or of(*[1 - 1e-9] * 100).p_value == 0
    assert of(*[0.6321] * 20_000).p_value == pytest.approx(0.5, abs=0.1)


def test_keys(tmp_path: Path) -> None:
    assert load_watermark(WatermarkConfig()) is None
    first = load_watermark(WatermarkConfig(key_file(tmp_path)))
    tokens = list(range(50))
    assert first is not None
    numbers = first.numbers_of(tokens)
    assert len(numbers) == 46 and all(0 < number < 1 for number in numbers)
    other = load_watermark(WatermarkConfig(key_file(tmp_path, "another secret of the operator")))
    wide = load_watermark(WatermarkConfig(key_file(tmp_path), 6))
    assert other is not None and other.numbers_of(tokens) != numbers
    assert wide is not None and len(wide.numbers_of(tokens)) == 44
    with pytest.raises(ConfigError, match="5 characters; it needs 16"):
        load_watermark(WatermarkConfig(key_file(tmp_path, "short")))
    with pytest.raises(ConfigError, match="No such file"):
        load_watermark(WatermarkConfig(str(tmp_path / "absent")))
    with pytest.raises(ConfigError, match="needs --watermark-key-file"):
        WatermarkConfig(watermark_context_width=8)
    with pytest.raises(ValueError, match="at least 1"):
        _native.Watermark(1, context_tokens=0)


@pytest.fixture(name="key", scope="module")
def _key(tmp_path_factory: pytest.TempPathFactory) -> str:
    return key_file(tmp_path_factory.mktemp("key"))


@pytest.fixture(name="llm", scope="module")
def _llm(key: str) -> Iterator[LLM]:
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=4, watermark_key_file=key) as loaded:
        yield loaded


@needs_model
def test_is_found_with_the_key(llm: LLM, key: str) -> None:
    watermark = load_watermark(WatermarkConfig(key))
    other = _native.Watermark(1)
    assert watermark is not None
    plain = llm.generate(PROMPTS, **FIELDS, watermarking=False)
    for output in llm.generate(PROMPTS, **FIELDS):
        tokens = output.choices[0].token_ids
        assert detect(watermark, tokens).p_value < 1e-9
        assert detect(other, tokens).p_value > 1e-4
    for output in plain:
        assert detect(watermark, output.choices[0].token_ids).p_value > 1e-4
    for output in llm.generate(PROMPTS, **{**FIELDS, "temperature": 0}):
        assert detect(watermark, output.choices[0].token_ids).p_value > 1e-4


@needs_model
def test_drafts_change_no_token(llm: LLM, key: str) -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
    marked = [o.choices[0].token_ids for o in llm.generate(PROMPTS, **FIELDS)]
    with LLM(
        SMOLLM2, max_model_len=256, watermark_key_file=key, speculative_config=drafts
    ) as drafting:
        assert [o.choices[0].token_ids for o in drafting.generate(PROMPTS, **FIELDS)] == marked


@needs_model
def test_without_a_watermark() -> None:
    with LLM(SMOLLM2, max_model_len=128) as plain:
        with pytest.raises(EngineError, match="this server has no watermark"):
            plain.generate("a", watermarking=True, max_tokens=2)
        assert plain.generate("a", watermarking=False, max_tokens=2)
