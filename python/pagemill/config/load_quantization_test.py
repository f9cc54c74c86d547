"""Values of --quantization-config."""

from __future__ import annotations

import pytest

from pagemill.config import ConfigError, EngineConfig, build


def ignored(text: str) -> tuple[str, ...]:
    options = {"quantization": "fp8", "quantization-config": text}
    return build(EngineConfig, options).model.ignored_modules


def test_modules_that_stay_as_they_are() -> None:
    assert build(EngineConfig, {}).model.ignored_modules == ()
    assert ignored("{}") == ignored('{"ignore": []}') == ()
    assert ignored('{"ignore": ["lm_head", "re:.*down_proj"]}') == ("lm_head", "re:.*down_proj")


def test_modules_of_other_formats() -> None:
    text = '{"targets": {"down_proj": "int8", "re:.*experts": "int4"}, "ignore": ["lm_head"]}'
    model = build(EngineConfig, {"quantization": "fp8", "quantization-config": text}).model
    assert model.target_formats == (("down_proj", "int8"), ("re:.*experts", "int4"))
    assert model.ignored_modules == ("lm_head",)
    assert build(EngineConfig, {}).model.target_formats == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"ignored": ["a"]}', "no key 'ignored'; did you mean 'ignore'.*known: ignore"),
        ('{"linear": "fp8"}', "no key 'linear'; known: ignore, targets"),
        ('{"targets": ["a"]}', "an object of at most 256 names"),
        ('{"targets": {"a": 1}}', "an object of at most"),
        ('{"targets": {"": "fp8"}}', "an object of at most"),
        ('{"targets": {"' + "a" * 1025 + '": "fp8"}}', "1024 characters"),
        ('{"targets": {' + ", ".join(f'"{i}": "fp8"' for i in range(257)) + "}}", "at most 256"),
        ('{"ignore": "a"}', "list of at most"),
        ('{"ignore": {"a": 1}}', "list of at most"),
        ('{"ignore": ["a", 1]}', "list of at most"),
        ('{"ignore": [""]}', "list of at most"),
        ('{"ignore": ["' + "a" * 1025 + '"]}', "1024 characters"),
        ('{"ignore": [' + '"a", ' * 4096 + '"a"]}', "at most 4096 names"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"--quantization-config: .*{message}"):
        ignored(text)


def test_it_needs_quantization() -> None:
    with pytest.raises(ConfigError, match="give --quantization, too"):
        build(EngineConfig, {"quantization_config": {"ignore": ["lm_head"]}})
    with pytest.raises(ConfigError, match="give --quantization, too"):
        build(EngineConfig, {"quantization_config": {"targets": {"down_proj": "int8"}}})
