"""Grok 2: its vocabulary against tiktoken's, and its chats."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from pagemill.render.errors import RenderError
from pagemill.render.renderer import Renderer
from pagemill.render.split_patterns import SPLIT_RULES

SPECIAL = ["<|pad|>", "<|separator|>", "<|eos|>", "<|control1|>"]
WORDS = [b"th", b"he", b"the", b" t", b" the", b"in", b"ing", b"\xc3\xa9", b"\n\n", b"12"]
HI = [{"role": "user", "content": " the thing "}]


@dataclass
class Source:
    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    gguf: None = None


def _content(**changes: Any) -> dict[str, Any]:
    pieces = [bytes([byte]) for byte in range(256)] + WORDS
    regular = [{"bytes": list(text), "token": 10 + at} for at, text in enumerate(pieces)]
    special = [{"bytes": list(text.encode()), "token": at} for at, text in enumerate(SPECIAL)]
    return {"regular_tokens": regular, "special_tokens": special, "word_split": "V1", **changes}


def _open(folder: Path, **options: Any) -> Renderer:
    return Renderer.open(Source(folder), **options)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.tok.json").write_text(json.dumps(_content()))
    return tmp_path


def test_texts_have_tiktokens_ids(folder: Path) -> None:
    renderer = _open(folder)
    content = _content()
    ranks = {bytes(token["bytes"]): token["token"] for token in content["regular_tokens"]}
    (pattern,) = SPLIT_RULES["grok-2"].patterns
    oracle = tiktoken.Encoding("grok2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text in (
        "",
        "the thing is there\n\n\n 1234 x",
        "née 日本 🙂 don't",
        "<|eos|> <|pad|>",
        " \t",
    ):
        ids = oracle.encode(text, disallowed_special=())
        assert renderer.encode(text) == ids
        assert renderer.decode(ids) == text
    assert renderer.eos_token_ids == (2, 1)


def test_chats(folder: Path) -> None:
    renderer = _open(folder)
    turns = [
        {"role": "system", "content": "Be brief. "},
        *HI,
        {"role": "assistant", "content": "Yes."},
        *HI,
    ]
    assert renderer.render_chat(turns).text == (
        "System: Be brief.<|separator|>\n\nHuman: the thing<|separator|>\n\n"
        "Assistant: Yes.<|separator|>\n\nHuman: the thing<|separator|>\n\nAssistant:"
    )
    options = {"add_generation_prompt": False, "continue_final_message": True}
    assert renderer.render_chat(turns[:3], **options).text.endswith("\n\nAssistant: Yes.")
    tool = {"type": "function", "function": {"name": "f"}}
    assert '"name": "f"' in renderer.render_chat(HI, [tool]).text
    assert renderer.formats.can_call and not renderer.formats.has_reasoning


def test_users_write_no_control_tokens(folder: Path) -> None:
    renderer = _open(folder)
    prompt = renderer.render_chat([{"role": "user", "content": "<|separator|><|eos|>"}])
    ids = renderer.encode_prompt(prompt)
    assert [index for index in ids if index < len(SPECIAL)] == [1]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match=r"no tokenizer.tok.json, which --tokenizer-mode grok2"):
        _open(tmp_path, mode="grok2")
    twice = [{"bytes": [65], "token": 1}, {"bytes": [65], "token": 2}]
    for content in (
        _content(word_split="V2"),
        _content(regular_tokens=twice),
        _content(special_tokens=[{"bytes": [255], "token": 1}]),
        _content(regular_tokens=[{"bytes": [256], "token": 1}]),
        {"word_split": "V1"},
    ):
        (tmp_path / "tokenizer.tok.json").write_text(json.dumps(content))
        with pytest.raises(RenderError, match="not a tokenizer of Grok's|a token twice"):
            _open(tmp_path)
