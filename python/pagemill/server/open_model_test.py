"""Why a server takes no media."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.render.errors import RenderError
from pagemill.server.errors import ApiError
from pagemill.server.open_model import no_media, open_model
from pagemill.server.processes.engine_source import EngineSource
from pagemill.weights.source import ModelSource

_TEXT = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
_IMAGES = {
    "architectures": ["LlavaForConditionalGeneration"],
    "text_config": _TEXT | {"model_type": "llama"},
    "vision_config": _VISION | {"model_type": "clip_vision_model"},
    "image_token_index": 3,
}
_TEXT_ONLY = "takes parts of type `text` only"


@pytest.mark.parametrize(
    ("model", "language_model_only", "refused", "cause"),
    [
        (_IMAGES, True, (), "no encoder of media .--language-model-only."),
        (_IMAGES, False, ("image",), "no encoder of media .--limit-mm-per-prompt."),
        (_TEXT, False, ("image",), _TEXT_ONLY),
        (_TEXT, True, (), _TEXT_ONLY),
        ({"architectures": ["OtherForCausalLM"]}, True, (), _TEXT_ONLY),
    ],
)
def test_the_cause_is_an_option_that_was_given(
    model: dict[str, Any],
    language_model_only: bool,
    refused: tuple[str, ...],
    cause: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(model))
    source = ModelSource.open(tmp_path, tensors=False)
    options = {"language_model_only": language_model_only}
    config = replace(build_config(EngineConfig, options), refused_media=frozenset(refused))
    with pytest.raises(ApiError, match=cause):
        no_media(source, config).max_bytes("image", "file")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tool_call_parser": "x"}, "--tool-call-parser: unknown format 'x'"),
        ({"reasoning_parser": "x"}, "--reasoning-parser: unknown format 'x'"),
        ({"chat_template": "/nowhere/x.jinja"}, "'/nowhere/x.jinja' cannot be read"),
    ],
)
def test_mistakes_are_found_before_the_weights_are_read(
    options: dict[str, str], words: str
) -> None:
    class Unopened:
        async def open(self) -> None:
            pytest.fail("the engine was started")

    config = build_config(EngineConfig, options)
    with pytest.raises(RenderError, match=words):
        asyncio.run(open_model(cast(EngineSource, Unopened()), config))
