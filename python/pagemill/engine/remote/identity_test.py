"""Tests of what machines of one server must have in common."""

from pathlib import Path
from typing import Any

import pytest

from pagemill.config import ConfigError, EngineConfig, ServeConfig, build
from pagemill.config.watermark import WatermarkConfig
from pagemill.engine.remote.identity import (
    meeting_place,
    options_digest,
    wire_version,
    with_watermark,
)
from pagemill.engine.remote.join_messages import MAX_VERSION_CHARS


def digest(**options: Any) -> str:
    return options_digest(build(EngineConfig, {"model": "/here/model", **options}))


def test_options_of_a_machine_may_differ() -> None:
    names = {"served_model_name": ["model"]}
    own = {"threads": 3, "device": "cpu", "memory_utilization": 0.5, "cache_dir": "/there"}
    assert digest(**names) == digest(**names, **own)
    assert digest(**names) == digest(**names, model="/there/model")


@pytest.mark.parametrize(
    "other",
    [
        {"model": "/there/model"},  # which is what clients see
        {"max_model_len": 99},
        {"max_num_seqs": 9},
        {"kv_cache_dtype": "fp8"},
        {"lora_modules": ["a=/a"]},
        {"tensor_parallel_size": 2},
    ],
)
def test_what_requests_meet_may_not(other: dict[str, Any]) -> None:
    assert digest() != digest(**other)


def test_engines_mark_texts_by_one_key(tmp_path: Path) -> None:
    def digest(key: str, model: str = "ab") -> str:
        (tmp_path / "key").write_text(key)
        return with_watermark(model, WatermarkConfig(watermark_key_file=str(tmp_path / "key")))

    assert digest("a secret") == digest("a secret\n")
    assert len({digest("a secret"), digest("another"), digest("a secret", "cd"), "ab"}) == 4
    assert with_watermark("ab", WatermarkConfig()) == "ab"


def test_a_version_fits() -> None:
    assert 0 < len(wire_version()) <= MAX_VERSION_CHARS


def place(tmp_path: Path, secret: str | None, **options: Any) -> Any:
    if secret is not None:
        (tmp_path / "secret").write_text(secret)
        options["node_secret_file"] = str(tmp_path / "secret")
    return meeting_place(build(ServeConfig, {"data_parallel_size": 2, **options}))


def test_addresses_of_others_need_a_secret(tmp_path: Path) -> None:
    assert place(tmp_path, None).address == "127.0.0.1:29550"
    elsewhere = {"data_parallel_address": "10.0.0.7", "data_parallel_rpc_port": 7}
    with pytest.raises(ConfigError, match=r"--data-parallel-address 10\.0\.0\.7 needs --node-sec"):
        place(tmp_path, None, **elsewhere)
    with pytest.raises(ConfigError, match=r"--node-secret-file: .* at least 16"):
        place(tmp_path, "short", **elsewhere)
    made = place(tmp_path, "what both machines know", **elsewhere)
    assert (made.address, made.secret) == ("10.0.0.7:7", "what both machines know")
    assert made.secret not in repr(made)
