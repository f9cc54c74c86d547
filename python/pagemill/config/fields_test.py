"""Tests of pagemill.config.fields and of the configuration trees themselves."""

import dataclasses
from typing import Any

import pytest

from pagemill.config import (
    ConfigError,
    EngineConfig,
    ModelConfig,
    SamplingConfig,
    SchedulerConfig,
    ServeConfig,
    ServerConfig,
    build,
    flatten,
    leaves,
)

TREES = (EngineConfig, ServeConfig, SamplingConfig)


def test_defaults_are_the_documented_ones() -> None:
    config = build(ServeConfig, {})
    assert config == ServeConfig()
    assert config.engine.scheduler == SchedulerConfig(
        max_num_seqs=128, max_num_batched_tokens=1024, max_num_logits_rows=256
    )
    assert config.engine.cache.block_size == 16
    assert config.engine.cache.kv_cache_dtype == "auto"
    assert config.server.port == 8000


@pytest.mark.parametrize("tree", TREES)
def test_leaf_names_are_unique_and_explained(tree: type) -> None:
    found = leaves(tree)
    assert len({leaf.name for leaf in found}) == len(found)
    for leaf in found:
        assert leaf.spec.help.endswith("."), leaf.name
        assert leaf.spec.help[0].isupper() or ":" in leaf.spec.help, leaf.name


@pytest.mark.parametrize("tree", TREES)
def test_every_part_is_frozen_and_slotted(tree: type) -> None:
    for part in {tree, *(leaf.owner for leaf in leaves(tree))}:
        assert "__slots__" in vars(part)
        first = dataclasses.fields(part)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part(), first, None)


def test_dashes_underscores_text_and_values_are_alike() -> None:
    want = build(EngineConfig, {"max_model_len": 4096, "enable_prefix_caching": False})
    assert want == build(EngineConfig, {"max-model-len": "4K", "enable-prefix-caching": "off"})


def test_lists_and_objects() -> None:
    config = build(ServeConfig, {"api_key": ["a", "b"], "override_generation_config": '{"n": 1}'})
    assert config.server.api_key == ("a", "b")
    assert config.engine.model.override_generation_config == {"n": 1}
    assert build(ServeConfig, {"api_key": "one"}).server.api_key == ("one",)
    assert build(ServeConfig, {"api_key": 1234}).server.api_key == ("1234",)


def test_weights_of_tenants() -> None:
    values = {"scheduling_policy": "fair", "tenant_weights": '{"gold": 4, "": 2}'}
    assert build(ServeConfig, values).engine.scheduler.tenant_weights == {"gold": 4, "": 2}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_modl_len": 1}, "did you mean 'max-model-len'"),
        ({"zzzzzz": 1}, "unknown option 'zzzzzz'"),
        ({"port": 65536}, "--port: 65536 is out of range, which is from 0 to 65535"),
        ({"port": "x"}, "--port: 'x' is not a number"),
        ({"port": True}, "--port: True is not of type int"),
        ({"port": 1.5}, "--port: 1.5 is not of type int"),
        ({"port": None}, "--port needs a value"),
        ({"max_model_len": 0}, "at least 1|from 1"),
        (
            {"kv_cache_dtype": "bf61"},
            "not one of auto, bf16, bfloat16, f32, fp8, fp8_ds_mla, fp8_e4m3, int4, int8,"
            " k8v4; did you",
        ),
        ({"block_size": 24}, "not a power of two"),
        ({"block_size": 2, "kv_cache_dtype": "k8v4"}, "--block-size is 2, set 4 or more"),
        ({"block_size": 1, "kv_cache_dtype": "int4"}, "--block-size is 1, set 4 or more"),
        ({"memory_utilization": float("nan")}, "out of range"),
        ({"override_generation_config": "[1]"}, "not a JSON object"),
        ({"override_generation_config": "{"}, "--override-generation-config: '{' is not JSON"),
        ({"limit_mm_per_prompt": "image=2"}, "'image=2' is not JSON"),
        ({"max_model_len": -1}, "from 1 to 2147483647 tokens"),
        ({"api_key": ""}, "--api-key"),
        ({"api_key": "ä"}, "--api-key"),
        ({"served_model_name": [1, None]}, "--served-model-name: None is not of type str"),
        ({"port": 1, "Port": 2}, "unknown option 'Port'"),
        ({"max_num-seqs": 1, "max_num_seqs": 1}, "given twice"),
        ({"enable_prefix_caching": "maybe"}, "neither true nor false"),
        ({"enable_prefix_caching": 1}, "not of type bool"),
        ({"scheduling_policy": "lifo"}, "not one of fair, fcfs, priority"),
        ({"prefix_cache_eviction": "lur"}, "did you mean 'lru'"),
        ({"prefix_caching_hash_algo": "md5"}, "not one of xxh3-128, sha256"),
        ({"max_queue_time": -1}, "--max-queue-time: -1.0 is out of range"),
        ({"max_long_partial_prefills": 1}, "needs --long-prefill-token-threshold"),
        ({"tenant_weights": {"a": 2}}, "needs --scheduling-policy fair"),
        ({"scheduling_policy": "fair", "tenant_weights": {"a": 0}}, "weight of 'a' is 0"),
        ({"scheduling_policy": "fair", "tenant_weights": {"a": 1001}}, "from 1 to 1000"),
        ({"scheduling_policy": "fair", "tenant_weights": {"a": True}}, "whole number"),
        ({"scheduling_policy": "fair", "tenant_weights": {"a": 1.5}}, "whole number"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(ServeConfig, values)


def test_direct_construction_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="max-model-len"):
        ModelConfig(max_model_len=-1)
    with pytest.raises(ConfigError, match="not a tuple"):
        ServerConfig(api_key="secret")  # pyright: ignore[reportArgumentType]


def test_secrets_are_not_shown() -> None:
    config = build(ServeConfig, {"api_key": "hunter2"})
    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(flatten(config))
    assert flatten(config)["port"] == 8000


def test_flatten_and_build_are_inverse() -> None:
    config = build(EngineConfig, {"model": "m", "max_num_seqs": 3, "served_model_name": ["a"]})
    assert build(EngineConfig, flatten(config)) == config
