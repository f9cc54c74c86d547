from __future__ import annotations

import pytest

from pagemill.config import ConfigError, EngineConfig, build


def test_modules_enable_adapters() -> None:
    lora = build(EngineConfig, {"lora_modules": ["sql=/a=b", "chat=c"], "max_loras": 3}).lora
    assert lora.enabled and lora.slots == 3
    assert lora.modules == (("sql", "/a=b"), ("chat", "c"))
    assert build(EngineConfig, {"enable_lora": True}).lora.slots == 8
    assert EngineConfig().lora.slots == 0


def test_adapters_of_media() -> None:
    assert EngineConfig().lora.default_mm_loras is None and not EngineConfig().lora.enabled
    assert build(EngineConfig, {"default_mm_loras": "{}"}).lora.default_mm_loras == {}
    stated = {"default_mm_loras": '{"video": "a", "image": "b"}'}
    lora = build(EngineConfig, stated).lora
    assert lora.enabled and lora.slots == 2
    assert [*lora.media.items()] == [("video", "a"), ("image", "b")]
    assert "--default-mm-loras" in lora.flags
    lora = build(EngineConfig, {**stated, "lora_modules": ["sql=c"]}).lora
    assert lora.slots == 8 and "--lora-modules" in lora.flags


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"lora_modules": ["sql"]}, "'sql' is not name=folder"),
        ({"lora_modules": ["=folder"]}, "'=folder' is not name=folder"),
        ({"lora_modules": ["sql="]}, "'sql=' is not name=folder"),
        ({"lora_modules": ["x" * 257 + "=a"]}, "at most 256 characters"),
        ({"lora_modules": ["a=b", "a=c"]}, "two adapters have the name 'a'"),
        ({"lora_modules": ["a=b", "c=d"], "max_cpu_loras": 1}, "more than --max-cpu-loras 1"),
        ({"max_loras": 0}, "--max-loras"),
        ({"default_mm_loras": {"sound": "a"}}, "--default-mm-loras: 'sound': 'a' is not known"),
        ({"default_mm_loras": {"audio": ""}}, "--default-mm-loras: 'audio': '' is not known"),
        ({"default_mm_loras": {"audio": ["a"]}}, "--default-mm-loras: 'audio': \\['a'\\]"),
        ({"default_mm_loras": '["audio"]'}, "is not a JSON object"),
        (
            {"default_mm_loras": {"audio": "a"}, "lora_modules": ["audio=b"]},
            "'audio' is the name of the adapter of requests with audio",
        ),
        (
            {"default_mm_loras": {"audio": "a"}, "lora_modules": ["b=c"], "max_cpu_loras": 1},
            "have 2 adapters, more than --max-cpu-loras 1",
        ),
    ],
)
def test_what_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build(EngineConfig, fields)
