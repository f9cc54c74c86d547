"""Requests of Anthropic's Messages API as chat requests."""

from typing import Any

import pytest

from pagemill.server.errors import ApiError, bad_request
from pagemill.server.messages.chat import chat_request, renamed
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.protocol.messages import RULES, CountTokensRequest, MessagesRequest

USER: dict[str, Any] = {"role": "user", "content": "Hello"}
CALL: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}
TOOL: dict[str, Any] = {"name": "f", "description": "d", "input_schema": {"type": "object"}}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}


def said(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def asked(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def result(content: Any = None, **more: Any) -> dict[str, Any]:
    fields = {"type": "tool_result", "tool_use_id": "c1", "content": content, **more}
    return {name: value for name, value in fields.items() if value is not None}


def chat(*messages: Any, **more: Any) -> ChatRequest:
    fields = {"max_tokens": 5, "messages": list(messages or [USER]), **more}
    return chat_request(decode_fields(fields, MessagesRequest, RULES))


def document(content: str) -> dict[str, Any]:
    source = {"type": "text", "media_type": "text/plain", "data": content}
    return {"type": "document", "title": "Title", "source": source}


def refused(*messages: Any, **more: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        chat(*messages, **more)
    assert caught.value.status == 400
    return caught.value


def test_contents() -> None:
    assert chat().messages == [USER]
    assert chat(asked(text("Hello"))).messages == [USER]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat(asked(text("a"), text(""), text("b"))).messages == [asked(*parts)]
    assert chat(asked(text("a"), document("b"))).messages == [
        asked(parts[0], {"type": "text", "text": "Title\nb"})
    ]
    assert chat(asked()).messages == [{"role": "user", "content": ""}]


@pytest.mark.parametrize("system", ["Be brief.", [text("Be brief.")]])
def test_system(system: Any) -> None:
    assert chat(system=system).messages == [{"role": "system", "content": "Be brief."}, USER]


def test_system_in_several_parts() -> None:
    first = {"role": "system", "content": "b"}
    header = text("x-anthropic-billing-header: cc_version=1; cch=5;")
    (system, user) = chat(first, USER, system=[header, text("a")]).messages
    assert (system["role"], user) == ("system", USER)
    assert [part["text"] for part in system["content"]] == ["a", "b"]
    assert chat(system=[]).messages == chat(system="").messages == [USER]
    assert chat(system=[header]).messages == [USER]
    assert [m["role"] for m in chat(USER, first).messages] == ["user", "system"]


def test_messages_of_one_role_are_one_turn() -> None:
    got = chat(USER, asked(text("x")), said(text("a")), said(text("b"), CALL), asked(result("r")))
    assert [m["role"] for m in got.messages] == ["user", "assistant", "tool"]
    assert got.messages[1]["content"] == "ab"


def test_calls_and_results() -> None:
    second = {**CALL, "id": "c2", "input": {}}
    got = chat(
        USER,
        said(
            {"type": "thinking", "thinking": "Hm.", "signature": "s"}, text("I look."), CALL, second
        ),
        asked(text("And?"), result("Rain."), result([text("a"), text("b")], is_error=True)),
    )
    (_, assistant, *results) = got.messages
    assert assistant == {
        "role": "assistant",
        "content": "I look.",
        "reasoning": "Hm.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
            {"id": "c2", "type": "function", "function": {"name": "f", "arguments": {}}},
        ],
    }
    assert results == [
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: a\nb"},
        {"role": "user", "content": "And?"},
    ]
    found = [text("a"), document("b"), {"type": "tool_reference", "tool_name": "f"}]
    assert chat(USER, said(CALL), asked(result(found))).messages[-1]["content"] == (
        "a\nTitle\nb\nTool found: f"
    )
    (_, assistant, answer) = chat(USER, said(CALL), asked(result())).messages
    assert (assistant["content"], answer["content"]) == (None, "")


def test_results_with_images() -> None:
    png = {"type": "base64", "media_type": "image/png", "data": "aa"}
    image = {"type": "image", "source": png}
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}
    answer = chat(USER, said(CALL), asked(result([image, text("a")], is_error=True))).messages[-1]
    assert answer["role"] == "tool"
    assert answer["content"] == [{"type": "text", "text": "Error: a"}, part]
    (*_, answer) = chat(USER, said(CALL), asked(result([image]))).messages
    assert answer["content"] == [part]


def test_thinking_of_earlier_turns() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    thoughts = [{"type": "thinking", "thinking": each} for each in ("a", "", "b")]
    (_, assistant, _) = chat(USER, said(redacted, *thoughts, text("c")), USER).messages
    assert assistant == {"role": "assistant", "content": "c", "reasoning": "a\nb"}
    (_, assistant, _) = chat(USER, said(redacted, text("c")), USER).messages
    assert "reasoning" not in assistant


def test_a_last_message_of_the_assistant_is_continued() -> None:
    got = chat(USER, said(text("The answer is")))
    assert got.continue_final_message and not got.add_generation_prompt
    got = chat()
    assert got.add_generation_prompt and not got.continue_final_message
    for last in (said(CALL), said(text("a"), CALL), said(text(" ")), said()):
        assert refused(USER, last).param == "messages"


def test_anything_can_be_counted() -> None:
    for last in (said(CALL), said(text("a"), CALL), said(text(" ")), said()):
        body = decode_fields({"messages": [USER, last]}, CountTokensRequest, RULES)
        got = chat_request(body)
        assert not got.continue_final_message and not got.add_generation_prompt


def test_tools() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert chat(tools=[TOOL]).tools == [{"type": "function", "function": function}]
    tool = {"name": "f", "input_schema": {}, "type": "custom", "strict": True}
    (got,) = chat(tools=[tool]).tools
    assert got["function"] == {"name": "f", "parameters": {}, "strict": True}


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tool_choice(choice: dict[str, Any], wanted: Any) -> None:
    got = chat(tools=[TOOL], tool_choice=choice)
    assert (got.tool_choice, got.parallel_tool_calls) == (wanted, True)
    got = chat(tools=[TOOL], tool_choice={**choice, "disable_parallel_tool_use": True})
    assert (got.tool_choice, got.parallel_tool_calls) == (wanted, False)
    assert chat(tools=[TOOL]).tool_choice is None


def test_sampling() -> None:
    got = chat(temperature=0.5, top_k=3, top_p=0.9, stop_sequences=["x"], stream=True)
    assert (got.temperature, got.top_k, got.top_p, got.stop) == (0.5, 3, 0.9, ["x"])
    assert (got.max_tokens, got.stream, got.n) == (5, True, 1)


def test_thinking() -> None:
    for kind in ("enabled", "adaptive", "between_tools", "disabled"):
        on = kind != "disabled"
        thinking = {"type": kind, "budget_tokens": 1024}
        got = chat(thinking=thinking).chat_template_kwargs
        assert got == {"enable_thinking": on, "thinking": on}
        own = chat(thinking=thinking, chat_template_kwargs={"thinking": "x"})
        assert own.chat_template_kwargs == {"enable_thinking": on, "thinking": "x"}
    assert chat().chat_template_kwargs == {}


@pytest.mark.parametrize(("kind", "budget"), [("enabled", 1024), ("adaptive", None)])
def test_a_budget_of_thinking(kind: str, budget: int | None) -> None:
    fields = {"max_tokens": 5, "messages": [USER]}
    fields["thinking"] = {"type": kind, "budget_tokens": 1024}
    body = decode_fields(fields, MessagesRequest, RULES)
    assert chat_request(body, bounds_thinking=True).thinking_token_budget == budget
    assert chat_request(body).thinking_token_budget is None


def test_output_config() -> None:
    schema = {"type": "object"}
    got = chat(output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}})
    assert got.reasoning_effort == "low"
    assert got.response_format is not None
    assert got.response_format["json_schema"]["schema"] == schema
    assert chat(output_config={}).response_format is None


def test_what_cannot_change_the_output_is_ignored() -> None:
    got = chat(metadata={"user_id": "u"}, service_tier="auto", mcp_servers=[], unknown=1)
    assert got == chat()


def test_refusals_name_the_values_that_there_are() -> None:
    assert refused({"role": "judge", "content": "x"}).message == (
        "`messages[0].role`: invalid enum value 'judge'; expected one of assistant, system, user."
    )
    inner = asked(result([{"type": "search_result"}]))
    assert refused(inner).message == (
        "`messages[0].content[0].content[0].type`: invalid value 'search_result'; expected one of"
        " document, image, text, tool_reference."
    )
    assert refused(tool_choice={"type": "some"}).message.endswith("of any, auto, none, tool.")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            [{"type": "image", "source": {"type": "base64"}}],
            "`messages[0].content[0].source` must be of type `base64` with `data`",
        ),
        ([{"type": "image", "source": {"type": "file", "url": "x"}}], "or `url` with `url`"),
        (
            [text("a"), {"type": "document", "source": {"type": "url", "url": "x"}}],
            "`messages[0].content[1].source` is of type 'url'",
        ),
        ([{"type": "tool_reference", "tool_name": "f"}], "`tool_reference`, which a message"),
        (
            [result([{"type": "image", "source": {"type": "url"}}])],
            "`messages[0].content[0].content[0].source` must be of type",
        ),
        ([result([result()])], "`messages[0].content[0].content[0]"),
        ([CALL], "`tool_use`, which a message of role `user` cannot have"),
        ([{"type": "thinking", "thinking": ""}], "`thinking`, which a message of role `user`"),
        (
            [{"type": "web_search"}],
            "`messages[0].content[0].type`: invalid value 'web_search'; expected one of document, ",
        ),
        ([{"type": "text"}], "missing required field `text`"),
        (5, "`messages[0].content`"),
    ],
)
def test_blocks_that_are_refused(content: Any, words: str) -> None:
    error = refused({"role": "user", "content": content})
    assert error.param == "messages"
    assert words in error.message


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("messages", []),
        ("messages", [{"role": "tool", "content": "a"}]),
        ("messages", [{"role": "system", "content": ""}]),
        ("messages", [said(result("a")), USER]),
        ("messages", [{"role": "system", "content": [result("a")]}, USER]),
        ("max_tokens", 0),
        ("max_tokens", None),
        ("stop_sequences", [""]),
        ("stop_sequences", ["x"] * 65),
        ("stop_sequences", ["x" * 4097]),
        ("temperature", -1),
        ("tools", [{"name": "f"}]),
        ("tools", [{"name": "f", "type": "bash_20250124"}]),
        ("tools", [{"name": "", "input_schema": {}}]),
        ("tool_choice", {"type": "tool"}),
        ("tool_choice", {"type": "some"}),
        ("thinking", {"type": "loud"}),
        ("thinking", {"type": "enabled", "budget_tokens": 0}),
        ("output_config", {"format": {"type": "xml", "schema": {}}}),
        ("mcp_servers", [{"url": "x"}]),
        ("container", {"skills": []}),
        ("output_format", {"type": "json_schema"}),
        ("compaction", {"type": "compaction"}),
        ("thread", {"type": "create"}),
        ("thread", {"type": "continue", "previous_message_id": "msg_1"}),
    ],
)
def test_fields_that_are_refused(param: str, value: Any) -> None:
    error = refused(**{param: value})
    assert error.param == param and param in error.message


def test_refusals_name_the_fields_of_this_api() -> None:
    error = renamed(bad_request("`response_format` is odd: `response_format`.", "response_format"))
    assert error.message == "`output_config.format` is odd: `output_config.format`."
    assert (error.param, error.status) == ("output_config.format", 400)
    assert renamed(bad_request("`tools` is odd.", "tools")).param == "tools"
