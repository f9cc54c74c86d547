"""Modules are found by names, components of names, and patterns."""

from __future__ import annotations

import time

import pytest

from pagemill.quantization.at_load.listed_modules import ListedModules
from pagemill.quantization.pattern_syntax import PatternError

MODULES = [
    f"model.layers.{layer}.{module}"
    for layer in range(12)
    for module in ("self_attn.q_proj", "mlp.up_proj", "mlp.down_proj")
]


def listed(*entries: str) -> set[str]:
    ignored = ListedModules(entries)
    assert not ignored.unmatched(MODULES)
    return {module for module in MODULES if module in ignored}


def test_entries() -> None:
    assert listed("model.layers.1.mlp.up_proj") == {"model.layers.1.mlp.up_proj"}
    # Layer 1 is neither layer 10 nor layer 11.
    assert listed("layers.1") == {module for module in MODULES if ".layers.1." in module}
    assert listed("down_proj") == listed("re:.*down_proj") == listed("re:.*down_proj$")
    assert listed("re:.*mlp", "q_proj") == set(MODULES)


def test_entries_that_list_nothing() -> None:
    entries = ["re:.*proj", "lm_head", "down_proj", "re:down_proj", "*.up_proj", "proj"]
    found = ListedModules(entries).unmatched(MODULES)
    assert found == ["lm_head", "re:down_proj", "*.up_proj", "proj"]
    assert ListedModules(["a"]).unmatched([]) == ["a"]


def test_patterns_that_are_not_supported() -> None:
    with pytest.raises(PatternError, match="'\\('"):
        ListedModules(["lm_head", "re:("])


def test_lists_with_an_entry_for_each_module_take_little_time() -> None:
    modules = [f"model.layers.{i // 64}.mlp.experts.{i % 64}.up_proj" for i in range(4096)]
    begin = time.process_time()
    assert not ListedModules(modules).unmatched(modules)
    assert time.process_time() - begin < 5
