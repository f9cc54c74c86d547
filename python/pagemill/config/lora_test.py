from __future__ import annotations

import pytest

from pagemill.config import ConfigError, EngineConfig, build


def test_modules_enable_adapters() -> None:
    lora = build(EngineConfig, {"lora_modules": ["sql=/a=b", "chat=c"], "max_loras": 3}).lora
    assert lora.enabled and lora.slots == 3
    assert lora.modules == (("sql", "/a=b"), ("chat", "c"))
    assert build(EngineConfig, {"enable_lora": True}).lora.slots == 8
    assert EngineConfig().lora.slots == 0


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
    ],
)
def test_what_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build(EngineConfig, fields)
