"""Where sampling defaults come from, and which of them are caps."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagemill.config import ConfigError, ModelConfig
from pagemill.engine.loading import sampling_defaults


@dataclass(frozen=True)
class Source:
    kind: str
    path: Path


@pytest.fixture
def source(tmp_path: Path) -> Source:
    folder = tmp_path / "model"
    folder.mkdir()
    stated = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 100}
    (folder / "generation_config.json").write_text(json.dumps(stated))
    return Source("hf", folder)


def test_the_models_own_file_gives_defaults_and_no_cap(source: Source) -> None:
    defaults, cap = sampling_defaults(ModelConfig(), source)  # type: ignore[arg-type]
    assert (defaults.temperature, defaults.top_k, defaults.max_tokens) == (0.6, 20, 100)
    assert cap is None


def test_what_the_operator_overrides_wins_and_caps(source: Source) -> None:
    config = ModelConfig(override_generation_config={"top_k": 5, "max_new_tokens": 7})
    defaults, cap = sampling_defaults(config, source)  # type: ignore[arg-type]
    assert (defaults.temperature, defaults.top_k, defaults.max_tokens) == (0.6, 5, 7)
    assert cap == 7


def test_a_folder_that_the_operator_names_caps(source: Source, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text('{"max_new_tokens": 9}')
    config = ModelConfig(generation_config=str(other))
    defaults, cap = sampling_defaults(config, source)  # type: ignore[arg-type]
    assert (defaults.temperature, defaults.max_tokens, cap) == (1.0, 9, 9)


def test_none(source: Source) -> None:
    defaults, cap = sampling_defaults(ModelConfig(generation_config="none"), source)  # type: ignore[arg-type]
    assert (defaults.temperature, defaults.top_k, cap) == (1.0, 0, None)


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_a_file_that_was_asked_for_must_be_usable(
    source: Source, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ConfigError, match="generation_config.json"):
        sampling_defaults(ModelConfig(generation_config=str(tmp_path)), source)  # type: ignore[arg-type]


def test_a_model_without_the_file(tmp_path: Path) -> None:
    for kind in ("hf", "gguf"):
        defaults, cap = sampling_defaults(ModelConfig(), Source(kind, tmp_path))  # type: ignore[arg-type]
        assert (defaults.temperature, cap) == (1.0, None)
