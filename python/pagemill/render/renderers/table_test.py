"""Which renderer a model gets, and what holds for all of them."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from pagemill.render.errors import RenderError
from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.output_machine import FormatNames
from pagemill.render.renderer import Renderer
from pagemill.render.renderers.table import RENDERERS
from pagemill.render.sample_vocabularies import CHATML, byte_level_metadata

WRITTEN = [name for name, row in RENDERERS.items() if not row.vocabulary]
HI = [{"role": "user", "content": "the dog"}]
DEEPSEEK = [
    "<｜begin▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>",
    "｜DSML｜",
]
CONTROL = {
    "harmony": ["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>", "<|constrain|>"],
    "deepseek_v32": DEEPSEEK,
    "deepseek_v4": DEEPSEEK,
    "deepseek_v41": [*DEEPSEEK, "<｜System｜>"],
}


@dataclass
class Source:
    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    gguf: None = None


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    names = dict.fromkeys(name for row in CONTROL.values() for name in row)
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return tmp_path


def _opened(folder: Path, config: dict[str, Any], **options: Any) -> str:
    renderer = Renderer.open(Source(folder, config), **options)
    text = renderer.render_chat(HI).text
    renderer.close()
    beginnings = {
        "<|start|>": "harmony",
        "<｜begin▁of▁sentence｜><｜System｜>": "deepseek_v41",
        "<｜begin▁of▁sentence｜>": "deepseek_v4" if text.endswith("<think>") else "deepseek_v32",
        "<|im_s": "hf",
        "own": "hf",
    }
    return next(name for begin, name in beginnings.items() if text.startswith(begin))


def test_the_architecture_chooses_and_the_operator_overrides(folder: Path) -> None:
    assert _opened(folder, {}) == "hf"
    for name in WRITTEN:
        row = RENDERERS[name]
        for model in row.models:
            assert _opened(folder, {"architectures": [model]}) == name
        config = {"model_type": min(row.models)}
        assert _opened(folder, config) == name
        assert _opened(folder, config, mode="hf") == "hf"
        assert _opened(folder, config, chat_template="{{ 'own' }}") == "hf"
        assert _opened(folder, {}, mode=name) == name
    with pytest.raises(
        RenderError, match="--tokenizer-mode: unknown 'x'; known are auto, hf, deep"
    ):
        _opened(folder, {}, mode="x")


@pytest.mark.parametrize("name", WRITTEN)
def test_formats_and_ends_of_the_output_come_with_the_renderer(folder: Path, name: str) -> None:
    renderer = Renderer.open(Source(folder), mode=name)
    assert renderer.formats.can_call
    end = "<|call|>" if name == "harmony" else "<｜end▁of▁sentence｜>"
    assert renderer.eos_token_ids == (renderer.tokenizer.token_id(end),)
    named = FormatNames(reasoning="none", tools="none")
    assert not Renderer.open(Source(folder), formats=named, mode=name).formats.can_call


def _conversation(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    # `text` in every place that a client writes.
    call = {
        "id": "1",
        "function": {"name": text, "arguments": json.dumps({text: text, "n": [text]})},
    }
    result = {"role": "tool", "tool_call_id": "1", "content": text}
    roles = ("system", "user", "system", "developer", "user")
    calling = {"role": "assistant", "content": text, "reasoning": text, "tool_calls": [call]}
    schema = {"type": "string", "description": text, "enum": [text], "default": text}
    parameters = {"type": "object", "properties": {text: schema, "f": schema}, "required": [text]}
    function = {"name": text, "description": text, "parameters": parameters}
    messages = [{"role": role, "content": text} for role in roles]
    return [*messages, calling, result], [{"type": "function", "function": function}]


@pytest.mark.parametrize("name", WRITTEN)
def test_users_write_no_control_tokens(folder: Path, name: str) -> None:
    renderer = Renderer.open(Source(folder), mode=name)
    trusting = Renderer.open(Source(folder), mode=name, trust_control_tokens=True)
    known = {renderer.tokenizer.token_id(token) for token in CONTROL[name]}

    def control(text: str) -> list[int]:
        prompt = renderer.render_chat(*_conversation(text))
        ids = renderer.encode_prompt(prompt)
        plain = trusting.render_chat(*_conversation(text)).text
        assert renderer.decode(ids, skip_special_tokens=False) == plain
        return [index for index in ids if index in known]

    harmless = control("harmless")
    assert set(harmless) == known
    for token in CONTROL[name]:
        for text in (token, f"a {token}{token} b", token[:-1], token[1:], token[1:-1]):
            assert control(text) == harmless


@pytest.mark.parametrize("name", WRITTEN)
def test_bad_messages(folder: Path, name: str) -> None:
    renderer = Renderer.open(Source(folder), mode=name)
    for message, words in (
        ({"content": "x"}, "no role"),
        ({"role": "admin", "content": "x"}, "unknown role 'admin'"),
        ({"role": "user", "content": 5}, "not text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "it takes text"),
    ):
        with pytest.raises(RenderError, match=words):
            renderer.render_chat([message])
    with pytest.raises(RenderError, match="takes no documents"):
        renderer.render_chat(HI, template_kwargs={"documents": [{"text": "x"}]})


@pytest.mark.parametrize("mode", ["hf", *WRITTEN])
def test_variables_that_nothing_reads_are_noted_once(
    folder: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    renderer = Renderer.open(Source(folder), mode=mode)
    with caplog.at_level(logging.WARNING):
        for name in ("some", "other"):
            assert renderer.render_chat(HI, template_kwargs={name: 1}).text
    assert [record.getMessage().count("such as 'some'") for record in caplog.records] == [1]
    renderer.close()
