"""Every architecture with false values at the keys that it reads, those of nested configurations
too: the model loads, or one sentence says why not, in bounded time and memory."""

from __future__ import annotations

import copy
import json
import resource
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill.models.small_configs import AUDIO, DECODER, VISION, config
from pagemill.models.table import ARCHITECTURES
from pagemill.runner.build import BuildOptions, build, model_shapes
from pagemill.weights import ModelSource
from pagemill.weights.random_file import random_file

from tests.faults.false_values import (
    FUZZ,
    MAX_GROWTH_BYTES,
    VALUES,
    Place,
    as_json,
    load,
    places,
    put,
)

FEWER = settings(FUZZ, max_examples=30)
LISTS = (
    *([0, 0], [-1, 2], [3, 5, 7], [[1, 2], [3]], [float("nan")], ["a", "b"], [2**31 - 1] * 3),
    *(list(range(3000)), [[8, 8]] * 3000, {"model_type": "x"}, {"model_type": 3}),
)
# Configurations: one for each architecture, and one for an encoder that these do not have.
DONUT = {
    **config("VisionEncoderDecoderModel"),
    "encoder": {
        "model_type": "donut-swin",
        "image_size": [16, 24],
        "patch_size": 2,
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 4],
        "window_size": 3,
    },
    "architectures": ["VisionEncoderDecoderModel"],
}
STATED: Mapping[str, dict[str, Any]] = {
    **{name: {**config(name), "architectures": [name]} for name in ARCHITECTURES},
    "donut": DONUT,
}
# Keys that families may have under names of their own, or take from a merged configuration.
SWITCHES: Mapping[str, Any] = {**DECODER, **VISION, **AUDIO, "deepstack_visual_indexes": [0]}


class _Noted(dict[str, Any]):
    """An object of a configuration, at `path`, that adds to `read` the places of keys which are
    looked up."""

    def __init__(self, values: Mapping[str, Any], read: set[Place], path: Place = ()) -> None:
        super().__init__(
            (key, _Noted(value, read, (*path, key)) if isinstance(value, dict) else value)
            for key, value in values.items()
        )
        self._read, self._path = read, path

    def __getitem__(self, key: str) -> Any:
        self._read.add((*self._path, key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._read.add((*self._path, key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add((*self._path, key))
        return super().get(key, default)


def _write(folder: Path, stated: Mapping[str, Any]) -> list[Place]:
    """Writes a model to `folder`; returns the places of its configuration that are read."""
    (folder / "config.json").write_text(json.dumps(stated))
    source = ModelSource.open(folder, tensors=False)
    shapes = model_shapes(source, BuildOptions())
    random_file(folder, shapes, "bf16", values=False).rename(folder / "model.safetensors")
    read: set[Place] = set()
    source = ModelSource.open(folder)
    build(replace(source, config=_Noted(source.config, read)), BuildOptions())
    return sorted((read | set(places(stated))) - {("architectures", 0)}, key=str)


@pytest.mark.parametrize("name", STATED)
def test_configurations(tmp_path: Path, name: str) -> None:
    read = _write(tmp_path, STATED[name])
    stated = json.loads((tmp_path / "config.json").read_text())
    objects = [(), *(place for place in read if isinstance(_at(stated, place), dict))]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @FEWER
    @given(draw=st.data())
    def check(draw: st.DataObject) -> None:
        false = copy.deepcopy(stated)
        for _ in range(draw.draw(st.integers(1, 3))):
            place = draw.draw(st.sampled_from(read))
            if draw.draw(st.integers(0, 3)) == 0:
                switch = draw.draw(st.sampled_from(sorted(SWITCHES)))
                place = (*draw.draw(st.sampled_from(objects)), switch)
            if isinstance(_at(false, place[:-1]), dict):
                put(false, place, copy.deepcopy(draw.draw(st.sampled_from((*VALUES, *LISTS)))))
        (tmp_path / "config.json").write_text(as_json(false))
        load(tmp_path)

    check()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MAX_GROWTH_BYTES


def _at(value: Any, place: Place) -> Any:
    """The element of `value` at `place`; None if there is none."""
    for step in place:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


@pytest.mark.parametrize(
    ("architecture", "part", "changes", "sentence"),
    [
        ("CodeGenForCausalLM", None, {"rotary_dim": 64}, "rotary_dim is 64, of heads of 16"),
        ("OpenAIGPTLMHeadModel", None, {"afn": [[]]}, "afn: unknown activation 'a list'"),
        ("EuroBertModel", None, {"classifier_pooling": [[1]]}, "known: bos, mean, late"),
        ("ModernBertModel", None, {"classifier_pooling": {}}, "known: cls, mean"),
        ("JinaBertModel", None, {"feed_forward_type": [[]]}, "known: geglu, reglu"),
        ("NomicBertModel", None, {"n_embd": 8, "activation_function": [[]]}, "needs swiglu or"),
        (
            "CohereCompassForConditionalGeneration",
            "text_config",
            {"num_attention_heads": 64},
            "partial_rotary_factor 1 of heads of 1",
        ),
        (
            "Gemma4ForConditionalGeneration",
            "vision_config",
            {"pooling_kernel_size": 2**20},
            "1048576 x 1048576 patches are merged; at most 16 x 16",
        ),
    ],
)
def test_a_configuration_that_lies(
    tmp_path: Path, architecture: str, part: str | None, changes: dict[str, Any], sentence: str
) -> None:
    _write(tmp_path, STATED[architecture])
    stated = json.loads((tmp_path / "config.json").read_text())
    (stated if part is None else stated[part]).update(changes)
    (tmp_path / "config.json").write_text(as_json(stated))
    assert sentence in (load(tmp_path) or "")


def test_windows_of_many_stages_take_little_memory(tmp_path: Path) -> None:
    """A token has 4^6 rows in the first stage."""
    stages = 7
    encoder = DONUT["encoder"] | {
        "image_size": [128, 128],
        "patch_size": 1,
        "embed_dim": 4,
        "depths": [1] * stages,
        "num_heads": [1] * stages,
        "window_size": 2,
    }
    decoder = DONUT["decoder"] | {"cross_attention_hidden_size": 256}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _write(tmp_path, {**DONUT, "encoder": encoder, "decoder": decoder | {"d_model": 256}})
    assert load(tmp_path) is None
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MAX_GROWTH_BYTES
