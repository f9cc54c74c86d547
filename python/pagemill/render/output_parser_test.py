"""Reasoning and calls of tools are found, whole and in parts; nothing is lost, nothing grows."""

import json
import pickle
import random
import time
from collections.abc import Mapping

import pytest

from pagemill.render.assembly import ChoiceAssembler
from pagemill.render.errors import RenderError
from pagemill.render.events import CallArguments, CallStart, Event, Message, Piece, Reasoning
from pagemill.render.formats.format import MAX_BODY_CHARS, REASONING
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.reasoning_formats import (
    DEEPSEEK_R1,
    NEMOTRON,
    THINK,
    THINK_IN_ANSWER,
)
from pagemill.render.formats.table import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    check_names,
    choose_formats,
)
from pagemill.render.output_machine import BEGIN, FormatNames, Formats
from pagemill.render.output_parser import OutputParser, ParserOptions
from pagemill.render.testing.wire_formats import CHECKPOINT

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
IDS: Mapping[int, str] = {1000 + at: marker for at, marker in enumerate(MARKERS)}
AS_TEXT = Formats(THINK, HERMES)
AS_TOKENS = Formats(THINK, HERMES, IDS)
BOTH = ParserOptions(reasoning=True, tools=True)
WEATHER = '{"name": "get_weather", "arguments": {"city": "Paris", "days": [1, 2]}}'
CALL = f"<tool_call>\n{WEATHER}\n</tool_call>"
ARGUMENTS = '{"city": "Paris", "days": [1, 2]}'


def events_of(parser: OutputParser, parts: list[Piece]) -> list[Event]:
    events: list[Event] = []
    for part in parts:
        parser.push(part, events)
    parser.finish(events)
    return events


def folded(events: list[Event]) -> tuple[str, str, list[tuple[str, str]]]:
    message = Message()
    for event in events:
        message.add(event)
    return message.text, message.reasoning, [(c.name, c.arguments) for c in message.calls]


def parse(
    text: str, options: ParserOptions = BOTH, formats: Formats = AS_TEXT
) -> tuple[str, str, list[tuple[str, str]]]:
    return folded(events_of(OutputParser(formats, options), [Piece(text, 5, False)]))


def tokens(text: str, rng: random.Random, hidden: bool) -> list[Piece]:
    """`text` in random parts; markers are tokens of their own, and show no text if `hidden`."""
    pieces: list[Piece] = []
    while text:
        marker = next((m for m in MARKERS if text.startswith(m)), None)
        if marker is not None:
            token = next(index for index, m in IDS.items() if m == marker)
            pieces.append(Piece("" if hidden else marker, token, hidden))
            text = text[len(marker) :]
            continue
        nearest = min((at for m in MARKERS if (at := text.find(m)) > 0), default=len(text))
        size = min(rng.choice([1, 1, 2, 3, 5, 9]), nearest)
        pieces.append(Piece(text[:size], 5, False))
        text = text[size:]
    return pieces


OUTPUTS = {
    "Hello there.": ("Hello there.", "", []),
    "  spaces stay \n": ("  spaces stay \n", "", []),
    "<think>\nHm.\n\nSo.\n</think>\n\nYes.": ("Yes.", "Hm.\n\nSo.", []),
    "<think>never closed": ("", "never closed", []),
    "<think></think>Yes": ("Yes", "", []),
    "Yes</think>": ("Yes</think>", "", []),
    "An answer with <think> in it": ("An answer with <think> in it", "", []),
    "<think>a</think>b<think>c</think>": ("b<think>c</think>", "a", []),
    CALL: ("", "", [("get_weather", ARGUMENTS)]),
    f"I look.\n\n{CALL}\n{CALL}\n": ("I look.", "", [("get_weather", ARGUMENTS)] * 2),
    f"{CALL}\nDone.": ("Done.", "", [("get_weather", ARGUMENTS)]),
    f"<think>\nI look.\n</think>\n\n{CALL}": ("", "I look.", [("get_weather", ARGUMENTS)]),
    f"<think>I call\n{CALL}": ("", "I call", [("get_weather", ARGUMENTS)]),
    f"<tool_call>{WEATHER}": ("", "", [("get_weather", ARGUMENTS)]),
    '<tool_call>{"name": "f"}</tool_call>': ("", "", [("f", "{}")]),
    '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>': ("", "", [("f", '{"a": 1}')]),
    '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>': (
        *("", ""),
        [("f", '{"a": 1}')],
    ),
    '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>x': (
        *("x", ""),
        [("f", '{"a": "</tool_call>"}')],
    ),
    '<tool_call>{"name": "f", "arguments": {"a": "b\n</tool_call>x': (
        *("x", ""),
        [("f", '{"a": "b\n')],
    ),
    '<tool_call>{"name": "f", "arguments": {}} and more</tool_call>': (
        *("and more", ""),
        [("f", "{}")],
    ),
    '<tool_call>{"name": "f", "arguments": {"a": 1': ("", "", [("f", '{"a": 1')]),
    "a\n<tool_call>\nnot JSON\n</tool_call>\nb": (
        *("a\n<tool_call>\nnot JSON\n</tool_call>\nb", ""),
        [],
    ),
    '<tool_call>[{"name": "f"}]</tool_call>': ("", "", [("f", "{}")]),
    '<tool_call>["f"]</tool_call>': ('<tool_call>["f"]</tool_call>', "", []),
    "x </tool_call> y": ("x </tool_call> y", "", []),
    "a < b and <tool": ("a < b and <tool", "", []),
}


@pytest.mark.parametrize("end", range(1, len("</tool_call>")))
def test_an_output_that_ends_within_a_closing_marker(end: int) -> None:
    cut = CALL[: len(CALL) - end]
    assert parse(cut) == ("", "", [("get_weather", ARGUMENTS)])
    assert parse(f"{CALL}\n{cut}") == ("", "", [("get_weather", ARGUMENTS)] * 2)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("formats", [AS_TEXT, AS_TOKENS])
def test_any_portions_give_the_same_message(output: str, formats: Formats) -> None:
    want = OUTPUTS[output]
    rng = random.Random(output)
    for round_ in range(60):
        pieces = tokens(output, rng, hidden=formats is AS_TOKENS and round_ % 2 == 0)
        if formats is AS_TEXT:  # then markers come in parts as well
            cuts = sorted(rng.sample(range(len(output) + 1), min(len(output), rng.randrange(9))))
            edges = [0, *cuts, len(output)]
            parts = [output[a:b] for a, b in zip(edges, edges[1:], strict=False)]
            pieces = [Piece(part, 5, False) for part in parts]
        assert folded(events_of(OutputParser(formats, BOTH), pieces)) == want


def test_random_outputs_of_random_fragments_do_not_depend_on_portions() -> None:
    fragments = [*MARKERS, WEATHER, "\n", " ", '{"name": "f", "arguments": {', '"', "}", "ab", "<"]
    rng = random.Random(3)
    for _ in range(300):
        output = "".join(rng.choices(fragments, k=rng.randrange(1, 12)))
        whole = parse(output)
        for _ in range(5):
            pieces = [Piece(char, 5, False) for char in output]
            assert folded(events_of(OutputParser(AS_TEXT, BOTH), pieces)) == whole, output


def test_text_that_looks_like_a_marker_is_text_if_the_marker_is_a_token() -> None:
    assert parse(CALL, formats=AS_TOKENS) == (CALL, "", [])


def test_arguments_go_out_as_they_come() -> None:
    parser = OutputParser(AS_TEXT, BOTH)
    seen: list[list[Event]] = []
    for char in CALL:
        events: list[Event] = []
        parser.push(Piece(char, 5, False), events)
        seen.append(events)
    starts = [at for at, events in enumerate(seen) if any(type(e) is CallStart for e in events)]
    assert starts == [CALL.index('{"city"')]
    part = [e.text for events in seen for e in events if type(e) is CallArguments]
    assert len(part) == len(ARGUMENTS)
    assert json.loads("".join(part)) == {"city": "Paris", "days": [1, 2]}


def test_what_a_request_does_not_want_stays_text() -> None:
    output = f"<think>a</think>{CALL}"
    assert parse(output, ParserOptions()) == (output, "", [])
    assert parse(output, ParserOptions(reasoning=True)) == (CALL, "a", [])
    assert parse(CALL, ParserOptions(tools=True), Formats(THINK)) == (CALL, "", [])


def test_reasoning_that_the_prompt_opened() -> None:
    options = ParserOptions(reasoning=True, begins=REASONING)
    assert parse("\nHm.\n</think>\n\nYes.", options) == ("Yes.", "Hm.", [])
    assert AS_TEXT.after_prompt("<|assistant|>\n<think>\n") == REASONING
    assert AS_TEXT.after_prompt("<think>\n\n</think>\n\n") == BEGIN
    assert AS_TEXT.after_prompt("<think>a</think>b") is None
    assert AS_TEXT.after_content("<think>a</think>b<think>c") == REASONING
    assert AS_TEXT.after_content("<think>a</think>b") == BEGIN


def test_output_that_begins_with_reasoning_unless_the_prompt_closed_it() -> None:
    formats, wanted = Formats(DEEPSEEK_R1), ParserOptions(reasoning=True)
    for output in ("Hm.</think>Yes.", "<think>Hm.</think>Yes.", "\n<think>\nHm.\n</think>Yes."):
        assert parse(output, wanted, formats) == ("Yes.", "Hm.", [])
    closed = ParserOptions(reasoning=True, begins=BEGIN)
    assert parse("Yes.", closed, formats) == ("Yes.", "", [])


def test_reasoning_that_is_part_of_the_answer() -> None:
    formats = Formats(THINK_IN_ANSWER, HERMES, IDS)
    for begins in (None, formats.after_prompt("<think>\n")):
        options = ParserOptions(reasoning=True, tools=True, begins=begins)
        got = folded(
            events_of(
                OutputParser(formats, options),
                tokens(f"Hm.</think>Yes.{CALL}", random.Random(1), hidden=False),
            )
        )
        assert got == ("<think>Hm.</think>Yes.", "", [("get_weather", ARGUMENTS)])
    # What goes on with a message, or behind the end of the reasoning, has its beginning already.
    for begins in (formats.after_content("<think>H"), formats.after_prompt("<think></think>")):
        options = ParserOptions(reasoning=True, begins=begins)
        assert parse("Yes.", options, formats) == ("Yes.", "", [])


def test_reasoning_answers_if_nothing_else_does() -> None:
    formats = Formats(NEMOTRON, HERMES)
    assert formats.answers_with_reasoning({"enable_thinking": False})
    assert formats.answers_with_reasoning({"force_nonempty_content": True})
    assert not formats.answers_with_reasoning({"enable_thinking": True, "other": 1})
    assert not AS_TEXT.answers_with_reasoning({"enable_thinking": False})
    options = ParserOptions(reasoning=True, tools=True, answers_with_reasoning=True)
    for output, want in {
        "<think>Hm.\n\nSo.</think>\n": ("Hm.\n\nSo.", "Hm.\n\nSo.", []),
        "<think>Hm.": ("Hm.", "Hm.", []),
        "<think>Hm.</think>Yes.": ("Yes.", "Hm.", []),
        f"<think>Hm.</think>{CALL}": ("", "Hm.", [("get_weather", ARGUMENTS)]),
        "": ("", "", []),
    }.items():
        for parts in ([Piece(output, 5, False)], [Piece(char, 5, False) for char in output]):
            assert folded(events_of(OutputParser(formats, options), parts)) == want


class Characters:
    """Token id = character code, except for markers, which show no text."""

    def piece(self, token_id: int) -> Piece:
        special = token_id in IDS
        return Piece("" if special else chr(token_id), token_id, special)

    def flush(self) -> str:
        return ""


class Output:
    """What the engine says."""

    index = 0
    logprobs = None
    stop_token_id = None

    def __init__(self, token_ids: list[int], finish_reason: str | None = None) -> None:
        self.token_ids = token_ids
        self.finish_reason = finish_reason


def ids_of(text: str) -> list[int]:
    rng = random.Random(0)
    pieces = tokens(text, rng, hidden=True)
    return [i for p in pieces for i in ([p.token_id] if p.special else map(ord, p.text))]


def test_stop_strings_work_across_markers_and_keep_them() -> None:
    ids = ids_of(f"<think>stopper</think>Oh, {CALL}")
    for stop, want in (
        (["stopping"], ("Oh,", "stopper", [("get_weather", ARGUMENTS)])),
        (["Oh"], ("", "stopper", [])),
        (["Paris"], ("Oh,", "stopper", [("get_weather", '{"city": "')])),
        (["erOh"], ("", "stopp", [])),  # a marker that shows no text is not in between
    ):
        for size in (1, 3, 1000):
            assembler = ChoiceAssembler(Characters(), OutputParser(AS_TOKENS, BOTH), stop)
            events: list[Event] = []
            for at in range(0, len(ids), size):
                is_last = at + size >= len(ids)
                delta = assembler.push(Output(ids[at : at + size], "length" if is_last else None))
                events += delta.events
                if assembler.finished:
                    break
            assert folded(events) == want


def test_one_call_at_most() -> None:
    ids = ids_of(CALL + CALL)
    for size in (1, 7, 1000):
        parser = OutputParser(AS_TOKENS, ParserOptions(tools=True, max_calls=1))
        assembler = ChoiceAssembler(Characters(), parser)
        events: list[Event] = []
        count = 0
        for at in range(0, len(ids), size):
            delta = assembler.push(Output(ids[at : at + size]))
            events += delta.events
            count += len(delta.token_ids)
            if assembler.finished:
                assert delta.finish_reason == "stop"
                break
        assert folded(events)[2] == [("get_weather", ARGUMENTS)]
        # Nothing of the second call, and no more of the first one than it needs.
        assert len(ids) // 2 - len("}\n") - 1 == count


HEAD = '<tool_call>{"name":"f","arguments":{'


@pytest.mark.parametrize("part", ["<tool_call", "<", " ", "\n", '{"', "<tool_call>", HEAD, "\\"])
def test_state_is_bounded_and_time_is_linear(part: str) -> None:
    def seconds(times: int) -> float:
        parser = OutputParser(AS_TEXT, BOTH)
        begin = time.thread_time()
        for _ in range(times):
            parser.push(Piece(part, 5, False), [])
        taken = time.thread_time() - begin
        assert len(pickle.dumps(parser)) < MAX_BODY_CHARS + 10_000
        return taken

    short, long = (min(seconds(times) for _ in range(3)) for times in (1000, 4000))
    assert long < 4 * (4 * short + 0.01)


def test_a_call_that_is_too_long_to_keep_is_text() -> None:
    body = '{"arguments": {"a": "' + "x" * MAX_BODY_CHARS + '"}, "name": "f"}'
    output = f"<tool_call>{body}</tool_call>"
    assert parse(output) == (output, "", [])


def test_the_format_is_chosen_by_name_or_by_the_template() -> None:
    template = "{% for m in messages %}<tool_call>{{ m.arguments }}</tool_call></think>"
    found = Formats.of(template, FormatNames(), {"<think>": 7, "</tool_call>": 8}.get)
    assert (found.reasoning, found.tools) == (THINK, HERMES)
    assert found.marker_ids == {7: "<think>", 8: "</tool_call>"}
    none = Formats.of(template, FormatNames("none", "none"), lambda _: None)
    assert (none.reasoning, none.tools) == (None, None)
    named = Formats.of("", FormatNames("think", "hermes"), lambda _: None)
    assert (named.reasoning, named.tools) == (THINK, HERMES)
    with pytest.raises(RenderError, match=r"--tool-call-parser: unknown format 'x'; .* hermes"):
        choose_formats(None, "x", template)
    for names, flag in ((("x", None), "--reasoning-parser"), ((None, "x"), "--tool-call-parser")):
        with pytest.raises(RenderError, match=f"{flag}: unknown format 'x'; known are "):
            check_names(*names)
    check_names("think", "none")
    check_names(None, None)
    with pytest.raises(RenderError, match="name different formats, one of which is of whole mess"):
        choose_formats("think", "openai", "")
    assert choose_formats("none", "openai", "").messages is not None


def test_the_tables_are_sorted_and_load() -> None:
    assert list(TOOL_FORMATS) == sorted(TOOL_FORMATS)
    assert list(REASONING_FORMATS) == sorted(REASONING_FORMATS)
    for name in TOOL_FORMATS:
        assert any(choose_formats("none", name, "", CHECKPOINT))
    for name in REASONING_FORMATS:
        assert any(choose_formats(name, "none", "", CHECKPOINT))
    assert (len(TOOL_FORMATS), len(REASONING_FORMATS)) == (54, 39)  # "think" is ours


def test_reasoning_events_are_parts() -> None:
    events: list[Event] = []
    parser = OutputParser(AS_TOKENS, BOTH)
    for piece in tokens("<think>ab", random.Random(0), hidden=True):
        parser.push(piece, events)
    assert all(type(event) is Reasoning for event in events)
    assert events
