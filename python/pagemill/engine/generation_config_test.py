"""Where sampling defaults come from, and which of them are caps."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagemill.config import ConfigError, ModelConfig
from pagemill.engine.generation_config import ChosenDefaults, choose_defaults
from pagemill.engine.sampling import SamplingDefaults


@dataclass(frozen=True)
class Source:
    kind: str
    path: Path
    parameters: int = 10**6


def choose(model: ModelConfig, source: Source) -> ChosenDefaults:
    return choose_defaults(model, source)  # type: ignore[arg-type]


def write(folder: Path, content: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "generation_config.json").write_text(content)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Source:
    stated = {"temperature": 0.7, "top_k": 20, "max_new_tokens": 100, "do_sample": False}
    return Source("hf", write(tmp_path / "model", json.dumps(stated)))


def test_the_models_own_file_gives_defaults_and_no_cap(source: Source) -> None:
    chosen = choose(ModelConfig(), source)
    assert chosen.defaults == SamplingDefaults(temperature=0.7, top_k=20, max_tokens=100)
    assert chosen.origin == "the model's generation_config.json"
    assert chosen.max_tokens_cap is None


def test_what_the_operator_overrides_wins_and_caps(source: Source) -> None:
    chosen = choose(
        ModelConfig(override_generation_config={"top_k": 5, "max_new_tokens": 7}), source
    )
    assert chosen.defaults == SamplingDefaults(temperature=0.7, top_k=5, max_tokens=7)
    assert chosen.max_tokens_cap == 7


def test_a_folder_that_the_operator_names_stands_alone_and_caps(
    source: Source, tmp_path: Path
) -> None:
    other = write(tmp_path / "other", '{"max_new_tokens": 9, "top_k": -1, "top_p": null}')
    chosen = choose(ModelConfig(generation_config=str(other)), source)
    assert chosen.defaults == SamplingDefaults(top_k=0, max_tokens=9)
    assert chosen.max_tokens_cap == 9


@pytest.mark.parametrize("name", ["none", "vllm"])
def test_neutral_defaults(source: Source, name: str) -> None:
    chosen = choose(ModelConfig(generation_config=name), source)
    assert (chosen.defaults, chosen.max_tokens_cap) == (SamplingDefaults(), None)


@pytest.mark.parametrize(
    ("parameters", "temperature", "size"),
    [(135 * 10**6, 0.2, "below 1 billion"), (10**9, 0.6, "from 1 billion")],
)
def test_a_model_that_states_nothing_gets_what_suits_its_size(
    tmp_path: Path, parameters: int, temperature: float, size: str
) -> None:
    write(tmp_path, '{"eos_token_id": 2, "max_new_tokens": 50, "temperature": null}')
    for kind, max_tokens in (("hf", 50), ("gguf", None)):
        chosen = choose(ModelConfig(), Source(kind, tmp_path, parameters))
        expected = SamplingDefaults(temperature=temperature, top_p=0.9, max_tokens=max_tokens)
        assert chosen.defaults == expected
        assert size in chosen.origin and chosen.max_tokens_cap is None
    overridden = choose(
        ModelConfig(override_generation_config={"top_p": 0.5}), Source("gguf", tmp_path, parameters)
    )
    assert overridden.defaults == SamplingDefaults(temperature=temperature, top_p=0.5)


@pytest.mark.parametrize("content", [None, "[]", "{", "[" * 10**5])
def test_a_file_that_was_asked_for_must_be_usable(
    source: Source, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        write(tmp_path, content)
    with pytest.raises(ConfigError, match="generation_config.json"):
        choose(ModelConfig(generation_config=str(tmp_path)), source)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", "0.5"),
        ("top_k", 1.5),
        ("top_k", 1e400),
        ("top_p", 0),
        ("min_p", True),
        ("repetition_penalty", float("inf")),
        ("max_new_tokens", 0),
    ],
)
def test_values_out_of_range_are_named(tmp_path: Path, key: str, value: Any) -> None:
    source = Source("hf", write(tmp_path, json.dumps({key: value})))
    with pytest.raises(ConfigError, match=f"generation_config.json: {key} must be .* from"):
        choose(ModelConfig(), source)
    with pytest.raises(ConfigError, match=f"--override-generation-config: {key} must be"):
        choose(
            ModelConfig(generation_config="none", override_generation_config={key: value}), source
        )
