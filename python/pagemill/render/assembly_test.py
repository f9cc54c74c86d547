"""ChoiceAssembler: text, stop strings, and what is counted, however outputs are merged."""

import random

import pytest

from pagemill.engine.outputs import ChoiceOutput
from pagemill.render.assembly import ChoiceAssembler
from pagemill.render.events import Piece


class Letters:
    """Token id = character code; the last character is only flushed out."""

    def __init__(self) -> None:
        self.held = ""

    def piece(self, token_id):
        text, self.held = self.held, chr(token_id)
        return Piece(text, token_id, False)

    def flush(self):
        held, self.held = self.held, ""
        return held


def outputs(text: str, finish: str | None, cuts: list[int]) -> list[ChoiceOutput]:
    edges = [0, *cuts, len(text)]
    outputs = [
        ChoiceOutput(0, [ord(c) for c in text[a:b]], [])
        for a, b in zip(edges, edges[1:], strict=False)
    ]
    outputs[-1].finish_reason = finish
    return outputs


def drive(assembler: ChoiceAssembler, parts: list[ChoiceOutput]):
    text, tokens, reason, stop = "", 0, None, None
    for part in parts:
        delta = assembler.push(part)
        text += delta.text
        tokens += len(delta.token_ids)
        reason, stop = delta.finish_reason, delta.stop_reason
        if reason is not None:
            break
    return text, tokens, reason, stop


def test_length() -> None:
    assert drive(ChoiceAssembler(Letters()), outputs("hello", "length", [2])) == (
        "hello",
        5,
        "length",
        None,
    )


def test_the_stopping_token_is_counted_and_not_spoken() -> None:
    assert drive(ChoiceAssembler(Letters()), outputs("hello$", "stop", [2])) == (
        "hello",
        6,
        "stop",
        None,
    )
    part = ChoiceOutput(0, [104, 36], [], finish_reason="stop", stop_token_id=36)
    assert drive(ChoiceAssembler(Letters()), [part]) == ("h", 2, "stop", 36)


def test_the_stopping_token_is_spoken_where_asked() -> None:
    assembler = ChoiceAssembler(Letters(), None, include_stop=True)
    assert drive(assembler, outputs("hi$", "stop", []))[0] == "hi$"


@pytest.mark.parametrize("include", [False, True])
def test_stop_strings_do_not_depend_on_portions(include: bool) -> None:
    text, stop = "the quick brown fox", ["own", "brow"]
    rng = random.Random(1)
    results = set()
    for _ in range(200):
        cuts = sorted(rng.sample(range(1, len(text)), rng.randrange(len(text) - 1)))
        assembler = ChoiceAssembler(Letters(), stop=stop, include_stop=include)
        results.add(drive(assembler, outputs(text, "length", cuts)))
    # The letters arrive one token late, so the token after "brow" completes it.
    assert results == {("the quick brow" if include else "the quick ", 15, "stop", "brow")}


def test_a_stop_string_may_be_completed_by_the_flush() -> None:
    assembler = ChoiceAssembler(Letters(), stop=["end"])
    assert drive(assembler, outputs("the end", "length", [])) == ("the ", 7, "stop", "end")


def test_held_back_text_comes_out_at_the_end() -> None:
    assembler = ChoiceAssembler(Letters(), stop=["ending"])
    assert drive(assembler, outputs("the end", "length", [3])) == ("the end", 7, "length", None)


def test_stop_strings_count_after_min_tokens() -> None:
    assembler = ChoiceAssembler(Letters(), stop=["a"], min_tokens=4)
    assert drive(assembler, outputs("aaabcadd", "length", [])) == ("aaabc", 7, "stop", "a")


def test_logprobs_end_with_the_token_that_completes_the_stop_string() -> None:
    part = ChoiceOutput(0, [ord(c) for c in "abcd"], [], logprobs=list("wxyz"))  # type: ignore[arg-type]
    delta = ChoiceAssembler(Letters(), stop=["b"]).push(part)
    assert (delta.text, delta.logprobs, delta.token_ids) == ("a", ["w", "x", "y"], [97, 98, 99])
