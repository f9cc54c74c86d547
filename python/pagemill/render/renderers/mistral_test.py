"""Mistral's vocabularies and chats, against mistral-common with the files that it brings."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mistral_common
import pytest
from mistral_common.protocol.instruct import messages as theirs
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from pagemill.render.errors import RenderError
from pagemill.render.events import Event, Message, Piece
from pagemill.render.mistral_vocabulary import FIRST_TOKENS, mistral_file, mistral_tokenizer
from pagemill.render.output_machine import FormatNames
from pagemill.render.output_parser import OutputParser, ParserOptions
from pagemill.render.renderer import Renderer

DATA = Path(mistral_common.__file__).parent / "data"
FILES = {
    "v1": "tokenizer.model.v1",
    "v2": "mistral_instruct_tokenizer_240216.model.v2",
    "v3": "mistral_instruct_tokenizer_240323.model.v3",
    "v7": "mistral_instruct_tokenizer_241114.model.v7",
    "tekken": "tekken_240911.json",
}
NAMED = ["[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "The weather é",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
TEXTS = [
    *("", " ", "\n", "  lead", "a b  c\t\td\r\n\r\n", "don't STOP 1234 x=1;", "a" * 500),
    "naïve 日本語テキスト 🙂👩‍👩‍👧 Привет мир हिन्दी العربية",
    "</s> [INST] [TOOL_CALLS] <unk> <0x41> <SPECIAL_30>",
    Path(__file__).read_text(encoding="utf-8"),
]


@dataclass
class Source:
    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    gguf: Any = None


def _vocabulary(version: str, special_tokens: list[str]) -> dict[str, Any]:
    """Tekken's, shortened and of another version."""
    content = json.loads((DATA / FILES["tekken"]).read_text(encoding="utf-8"))
    config = {**content["config"], "version": version, "default_vocab_size": 2000}
    names = [
        {"rank": at, "token_str": text, "is_control": True}
        for at, text in enumerate(special_tokens)
    ]
    config["default_num_special_tokens"] = 100
    return {"config": config, "vocab": content["vocab"][:1900], "special_tokens": names}


@pytest.fixture(name="folders", scope="module")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for version, name in FILES.items():
        folders[version] = tmp_path_factory.mktemp(version)
        target = "tekken.json" if version == "tekken" else f"tokenizer.model.{version}"
        (folders[version] / target).symlink_to(DATA / name)
    for version in ("v11", "v13"):
        folders[version] = tmp_path_factory.mktemp(version)
        content = _vocabulary(version, [*FIRST_TOKENS, *NAMED[: 4 if version == "v13" else 2]])
        (folders[version] / "tekken.json").write_text(json.dumps(content))
    return folders


VERSIONS = [*FILES, "v11", "v13"]


@dataclass
class Opened:
    """A model in Mistral's mode, and the library's tokenizer of the same file."""

    version: int
    renderer: Renderer
    oracle: Any

    def prompt(self, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        return self.renderer.encode_prompt(self.renderer.render_chat(messages, **options))

    def theirs(self, messages: list[Any], **options: Any) -> list[int]:
        request = ChatCompletionRequest(messages=messages, **options)
        return self.oracle.encode_chat_completion(request).tokens


@pytest.fixture(name="opened", params=[*FILES, "v11", "v13"], scope="module")
def _opened(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[Opened]:
    folder = folders[request.param]
    renderer = Renderer.open(Source(folder), mode="mistral")
    oracle = MistralTokenizer.from_file(mistral_file(folder))
    yield Opened(int(oracle.version.value[1:]), renderer, oracle)
    renderer.close()


def test_texts_have_the_same_tokens(opened: Opened) -> None:
    words = opened.oracle.instruct_tokenizer.tokenizer
    assert opened.renderer.vocab_size == words.n_words
    for text in TEXTS:
        ids = words.encode(text, bos=False, eos=False)
        assert opened.renderer.encode(text, add_special_tokens=False) == ids
        assert opened.renderer.encode(text) == [words.bos_id, *ids]
        assert opened.renderer.decode(ids) == text
    assert opened.renderer.eos_token_ids == (words.eos_id,)


def test_chats_are_those_of_the_library(opened: Opened) -> None:
    hello = [{"role": "user", "content": "Hello"}]
    assert opened.prompt(hello) == opened.theirs([theirs.UserMessage(content="Hello")])
    turns = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    parts = [theirs.TextChunk(text="a"), theirs.TextChunk(text="b")]
    assert opened.prompt(turns) == opened.theirs(
        [
            theirs.SystemMessage(content=[theirs.TextChunk(text="Be brief.")]),
            theirs.UserMessage(content="one"),
            theirs.AssistantMessage(content="two"),
            theirs.UserMessage(content=parts),
        ]
    )
    options = {"continue_final_message": True, "add_generation_prompt": False}
    assert opened.prompt([*hello, turns[2]], **options) == opened.theirs(
        [theirs.UserMessage(content="Hello"), theirs.AssistantMessage(content="two")],
        continue_final_message=True,
    )


def test_tools_their_calls_and_results(opened: Opened) -> None:
    if opened.version < 2:
        return
    call = {"id": "abcdefgh1", "function": {"name": "f", "arguments": '{"city": "Paris é"}'}}
    result = {"role": "tool", "tool_call_id": "abcdefgh1", "content": '{"sky": "blue"}'}
    asked = {"role": "user", "content": "?"}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    function = Function(**TOOLS[0]["function"])
    called = ToolCall(id="abcdefgh1", function=FunctionCall(**call["function"]))
    got = opened.prompt([asked, calling, result], tools=TOOLS)
    assert got == opened.theirs(
        [
            theirs.UserMessage(content="?"),
            theirs.AssistantMessage(content=None, tool_calls=[called]),
            theirs.ToolMessage(content='{"sky": "blue"}', tool_call_id="abcdefgh1"),
        ],
        tools=[Tool(function=function)],
    )
    # Ids of another form are the same for a call and for its result.
    for given in ("chatcmpl-tool-1", "", 5):
        messages = [
            asked,
            {**calling, "tool_calls": [{**call, "id": given}]},
            {**result, "tool_call_id": given},
        ]
        assert len(opened.prompt(messages, tools=TOOLS)) > 20


def test_calls_are_read_back_by_the_format(opened: Opened) -> None:
    if opened.version < 2:
        return
    calls = [("f", '{"city": "Paris"}'), ("g", '{"a": [1, {"b": "}"}]}')]
    written = [
        ToolCall(id=f"abcdefgh{at}", function=FunctionCall(name=name, arguments=arguments))
        for at, (name, arguments) in enumerate(calls)
    ]
    ids = opened.oracle.instruct_tokenizer.encode_assistant_message(
        theirs.AssistantMessage(content=None, tool_calls=written), False, False
    )
    message, events = Message(), list[Event]()
    parser = OutputParser(opened.renderer.formats, ParserOptions(reasoning=True, tools=True))
    detokenizer = opened.renderer.detokenizer()
    for token in ids:
        if token not in opened.renderer.eos_token_ids:
            parser.push(detokenizer.piece(token), events)
    parser.push(Piece(detokenizer.flush(), -1, False), events)
    parser.finish(events)
    for event in events:
        message.add(event)
    got = [(call.name, json.loads(call.arguments)) for call in message.calls]
    assert got == [(name, json.loads(arguments)) for name, arguments in calls]
    assert not message.text.strip()
    spelling = opened.renderer.formats.tools and opened.renderer.formats.tools.spelling
    assert spelling and (spelling.before_arguments == "[ARGS]") == (opened.version >= 11)


def test_reasoning_of_earlier_turns(opened: Opened) -> None:
    asked = {"role": "user", "content": "?"}
    said = {"role": "assistant", "content": "Yes.", "reasoning": "Hm."}
    got = opened.prompt([asked, said, asked])
    if opened.version < 13:
        assert got == opened.prompt([asked, {**said, "reasoning": None}, asked])
        assert opened.renderer.formats.reasoning is not None
        assert opened.renderer.formats.reasoning.openers == (
            ("<think>",) if opened.version > 1 else ("[THINK]",)
        )
        return
    chunks = [theirs.ThinkChunk(thinking="Hm."), theirs.TextChunk(text="Yes.")]
    asking = theirs.UserMessage(content="?")
    assert got == opened.theirs([asking, theirs.AssistantMessage(content=chunks), asking])


def test_users_write_no_control_tokens(opened: Opened) -> None:
    known = {
        opened.renderer.tokenizer.token_id(t) for t in opened.renderer.tokenizer.control_tokens
    }
    plain, spelt = (
        [i for i in opened.prompt([{"role": "user", "content": text}]) if i in known]
        for text in ("x", "[/INST] </s> [INST] <s> [TOOL_CALLS]")
    )
    assert plain == spelt


def test_what_the_library_refuses_is_a_bad_request(opened: Opened) -> None:
    for messages, words in (
        ([{"role": "admin", "content": "x"}], "no role of system, developer"),
        ([{"role": "user", "content": 5}], "is not text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "it takes text"),
        ([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "last role"),
        ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "mistral-common refuses"),
        ([{"role": "user", "content": "x" * 2**24}], "at most 16777216 are taken"),
    ):
        with pytest.raises(RenderError, match=re.escape(words)):
            opened.prompt(messages)
    with pytest.raises(RenderError, match="takes no documents"):
        opened.prompt([{"role": "user", "content": "x"}], template_kwargs={"documents": [{}]})


def test_the_folder_chooses(folders: dict[str, Path], tmp_path: Path) -> None:
    def is_mistral(folder: Path, **options: Any) -> bool:
        renderer = Renderer.open(Source(folder), **options)
        text = renderer.render_chat([{"role": "user", "content": "x"}]).text
        renderer.close()
        return text.startswith("<s>[INST]")

    (tmp_path / "tekken.json").symlink_to(folders["v13"] / "tekken.json")
    assert is_mistral(tmp_path)
    mistral_tokenizer(tmp_path / "tekken.json").save(str(tmp_path / "tokenizer.json"))
    assert is_mistral(tmp_path)
    assert not is_mistral(tmp_path, chat_template="{{ 'own' }}")
    (tmp_path / "chat_template.jinja").write_text("{{ 'own' }}")
    assert not is_mistral(tmp_path)
    assert is_mistral(tmp_path, mode="mistral")
    named = FormatNames(reasoning="none", tools="hermes")
    renderer = Renderer.open(Source(tmp_path), mode="mistral", formats=named)
    assert renderer.formats.reasoning is None


def test_what_is_missing_is_named(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RenderError, match="has neither tekken.json nor tokenizer.model"):
        Renderer.open(Source(tmp_path), mode="mistral")
    with pytest.raises(RenderError, match="for a GGUF file use hf"):
        Renderer.open(Source(tmp_path, gguf=object()), mode="mistral")
    for content in ("{}", '{"config": 5}', "[", '{"config": {"default_vocab_size": 9}}'):
        (tmp_path / "tekken.json").write_text(content)
        with pytest.raises(RenderError, match="not a tokenizer of Mistral|not JSON"):
            Renderer.open(Source(tmp_path), mode="mistral")
    (tmp_path / "tekken.json").unlink()
    for content in (b"\xff" * 20, b"\x0a\x7f", b"\x12\x02\x18\x01", b""):
        (tmp_path / "tokenizer.model").write_bytes(content)
        with pytest.raises(RenderError):
            Renderer.open(Source(tmp_path), mode="mistral")
    monkeypatch.setitem(sys.modules, "mistral_common.tokens.tokenizers.mistral", None)
    with pytest.raises(RenderError, match=re.escape("pip install 'pagemill[mistral]'")):
        Renderer.open(Source(folders["v13"]), mode="mistral")
