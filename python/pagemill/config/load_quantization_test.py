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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"ignored": ["a"]}', "no key 'ignored'; did you mean 'ignore'.*known: ignore"),
        ('{"targets": {"a": "fp8"}}', "no key 'targets'; known: ignore"),
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
