"""Tests of pagemill.render.stop_strings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagemill.render.stop_strings import MAX_STOP_CHARS, StopStringFilter

SMALL = st.text("ab\n", max_size=40)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4)


def _run(stop: list[str], include: bool, portions: list[str]) -> tuple[str, str | None]:
    found: str | None = None
    stop_filter = StopStringFilter(stop, include)
    text = ""
    for portion in portions:
        emitted, found = stop_filter.push(portion)
        text += emitted
        if found is not None:
            return text, found
    return text + stop_filter.flush(), None


def _by_definition(stop: list[str], include: bool, text: str) -> tuple[str, str | None]:
    # Character by character: the first moment at which the text ends in a stop string.
    for end in range(1, len(text) + 1):
        ending = [s for s in stop if text[:end].endswith(s)]
        if ending:
            longest = max(ending, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


@given(SMALL, STOPS, st.booleans(), st.lists(st.integers(0, 6), max_size=40))
@settings(max_examples=1500)
def test_portions_do_not_matter(text: str, stop: list[str], include: bool, cuts: list[int]) -> None:
    portions: list[str] = []
    at = 0
    for size in cuts:
        portions.append(text[at : at + size])
        at += size
    portions.append(text[at:])
    assert _run(stop, include, portions) == _by_definition(stop, include, text)


@given(SMALL, STOPS)
@settings(max_examples=500)
def test_no_more_is_held_back_than_needed(text: str, stop: list[str]) -> None:
    stop_filter = StopStringFilter(stop)
    out = ""
    for end, char in enumerate(text, 1):
        emitted, found = stop_filter.push(char)
        if found is not None:
            return
        out += emitted
        held = text[len(out) : end]
        assert held == "" or any(s.startswith(held) for s in stop)
        assert len(held) < max((len(s) for s in stop), default=1)


def test_after_a_match_nothing_is_emitted() -> None:
    stop_filter = StopStringFilter(["END"])
    assert stop_filter.push("xEND y") == ("x", "END")
    assert stop_filter.push("more") == ("", "END")
    assert stop_filter.flush() == ""


def test_without_stop_strings_text_passes() -> None:
    assert StopStringFilter([]).push("anything") == ("anything", None)


@pytest.mark.parametrize("stop", ["", "x" * (MAX_STOP_CHARS + 1)])
def test_unusable_stop_strings(stop: str) -> None:
    with pytest.raises(ValueError, match="stop string"):
        StopStringFilter([stop])
