"""Items of a conversation to messages of a chat."""

from typing import Any

import pytest

from pagemill.server.errors import ApiError
from pagemill.server.responses.input import continues_last, items_of, messages_of

IMAGE = {"type": "input_image", "image_url": "data:,x"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "Rain."}
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "Rain."}
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": []}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reasoning(text: str) -> dict[str, Any]:
    return {**THOUGHT, "content": [{"type": "reasoning_text", "text": text}]}


def messages(sent: Any, instructions: str | None = None) -> list[dict[str, Any]]:
    return messages_of(instructions, items_of(sent))


def test_a_string_is_a_message_of_the_user() -> None:
    assert messages("Hi") == [user("Hi")]
    (item,) = items_of("Hi")
    assert item.pop("id").startswith("msg_")
    assert item == {
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "Hi"}],
    }


def test_instructions_and_what_systems_say_first_are_one_message() -> None:
    sent = [
        {"role": "developer", "content": "B"},
        {"role": "system", "content": [{"type": "input_text", "text": "C"}]},
        user("Hi"),
        {"role": "system", "content": "D"},
    ]
    first, *others = messages(sent, "A")
    assert first == {"role": "system", "content": "A\n\nB\n\nC"}
    assert others == [user("Hi"), {"role": "system", "content": "D"}]


def test_contents() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages([{"role": "user", "content": parts}]) == [user(texts)]
    answer = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "No."}]
    sent = [{"type": "message", "role": "assistant", "content": answer, "phase": None}]
    assert messages(sent) == [{"role": "assistant", "content": "aNo."}]


def test_a_turn_of_the_model_is_one_message() -> None:
    answer = {"role": "assistant", "content": "Let me see."}
    whole = {"role": "assistant", "content": "Let me see.", "tool_calls": [TOOL_CALL]}
    assert messages([answer, CALL, RESULT]) == [whole, TOOL]
    assert messages([CALL, answer, RESULT]) == [whole, TOOL]
    second = {**CALL, "call_id": "c2"}
    (message,) = messages([CALL, second])
    assert [call["id"] for call in message["tool_calls"]] == ["c1", "c2"]
    assert messages([answer, answer]) == [answer, answer]


def test_reasoning_belongs_to_what_follows_it() -> None:
    sent = [reasoning("Hm. "), reasoning("Ah."), CALL, RESULT, reasoning("So."), user("Hi")]
    called, result, thought, last = messages(sent)
    assert called == {
        "role": "assistant",
        "content": None,
        "reasoning": "Hm. Ah.",
        "tool_calls": [TOOL_CALL],
    }
    assert (result, last) == (TOOL, user("Hi"))
    assert thought == {"role": "assistant", "content": "", "reasoning": "So."}
    summary = {**THOUGHT, "summary": [{"type": "summary_text", "text": "In short."}]}
    (message,) = messages([summary, {"role": "assistant", "content": "Yes."}])
    assert message == {"role": "assistant", "content": "Yes.", "reasoning": "In short."}
    # What only another server can read is left out.
    hidden = {**THOUGHT, "encrypted_content": "gAAA"}
    assert messages([hidden, user("Hi")]) == [user("Hi")]


def test_outputs_of_functions_may_have_parts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]
    assert messages([CALL, {**RESULT, "output": parts}])[1]["content"] == "a\nb"


def test_items_keep_their_ids_and_get_missing_ones() -> None:
    ids = [item["id"] for item in items_of([{**CALL, "id": "mine"}, CALL, RESULT, THOUGHT])]
    assert ids[0] == "mine" and ids[3] == "r"
    assert ids[1].startswith("fc_") and ids[2].startswith("fco_")


def test_an_unfinished_message_is_continued() -> None:
    answer = {"role": "assistant", "content": "I", "status": "incomplete"}
    assert continues_last(items_of([user("Hi"), answer]))
    assert not continues_last(items_of([answer, user("Hi")]))
    assert not continues_last(items_of([user("Hi"), {**answer, "status": "completed"}]))
    assert not continues_last([])


@pytest.mark.parametrize(
    ("item", "where"),
    [
        ({}, "input[0].type"),
        ({"type": 5}, "input[0].type"),
        ({"type": ["message"]}, "input[0].type"),
        ({"type": "item_reference", "id": "x"}, "input[0].type"),
        ({"type": "web_search_call", "id": "x"}, "input[0].type"),
        ({"type": "message", "content": "x"}, "input[0].role"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": {}, "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": 5}, "input[0].content"),
        ({"role": "user", "content": ["x"]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[0].content[0].image_url"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "input[0].content[0].input_audio"),
        ({"role": "assistant", "content": [IMAGE]}, "input[0].content[0]"),
        ({"role": "assistant", "content": [AUDIO]}, "input[0].content[0]"),
        ({"role": "user", "content": [{**IMAGE, "file_id": "f"}]}, "input[0].content[0].file_id"),
        ({"role": "user", "content": [{"type": {}}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({**CALL, "arguments": {}}, "input[0].arguments"),
        ({**CALL, "name": ""}, "input[0].name"),
        ({**CALL, "call_id": None}, "input[0].call_id"),
        ({**RESULT, "output": None}, "input[0].output"),
        ({**RESULT, "output": [{"type": "input_file"}]}, "input[0].output[0]"),
        ({**THOUGHT, "content": 5}, "input[0].content"),
        ({**THOUGHT, "summary": [5]}, "input[0].summary[0]"),
        (RESULT, "input"),
    ],
)
def test_bad_items_are_named(item: Any, where: str) -> None:
    with pytest.raises(ApiError) as caught:
        messages([item])
    assert caught.value.status == 400 and caught.value.param == "input"
    assert f"`{where}`" in caught.value.message


def test_media_are_parts_in_their_order():
    parts = [{"type": "input_text", "text": "a"}, IMAGE, {"type": "input_text", "text": "b"}]
    parts.append({**AUDIO, "transcript": "c"})
    (message,) = messages([{"role": "user", "content": parts}])
    assert message["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": "data:,x"},
        {"type": "text", "text": "b"},
        AUDIO,
    ]
    (message,) = messages([{"role": "user", "content": [IMAGE]}])
    assert message["content"] == [{"type": "image_url", "image_url": "data:,x"}]
