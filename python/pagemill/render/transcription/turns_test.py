"""Turns of speakers in outputs."""

from __future__ import annotations

import pytest

from pagemill.render.transcription.turns import Turn, Unmarked, turns

WRITTEN = "[0.28][S01]Hello there.[1.94][2.10][S02] Hi [sic]!\n[3.4]"


def unmarked(text: str, size: int) -> str:
    """`text` without marks if `size` characters are added at a time."""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    found = Unmarked()
    return "".join(found.add(part, ends=False) for part in parts) + found.add("", ends=True)


def test_turns() -> None:
    first = Turn(0.28, 1.94, "S01", "Hello there.")
    assert turns(WRITTEN, 30.0) == [first, Turn(2.1, 3.4, "S02", "Hi [sic]!")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1:02.5][S01]a[01:01:02]", [Turn(62.5, 3662.0, "S01", "a")]),
        ("[0][S01]a[1][S02]b[2]", [Turn(0.0, 1.0, "S01", "a"), Turn(1.0, 2.0, "S02", "b")]),
        ("[1][S01]the end is missing", [Turn(1.0, 4000.0, "S01", "the end is missing")]),
        ("[9000][S01]a[9001]", [Turn(4000.0, 4000.0, "S01", "a")]),
        ("[5][S01]a[3]", [Turn(5.0, 5.0, "S01", "a")]),
        ("a[1][S01] [2]b[3]c", []),
        ("[1][S2024x]a[nan]", []),
        ("[1][S01]a [S02]b[2]", [Turn(1.0, 2.0, "S01", "a b")]),
        ("[1][S01][S02][2]", []),
        ("", []),
    ],
)
def test_unusual_outputs(text: str, expected: list[Turn]) -> None:
    assert turns(text, 4000.0) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WRITTEN, "Hello there. Hi [sic]!"),
        ("  a  b \n c [", "a  b \n c ["),
        ("[0][S01] a [1][", "a ["),
        ("[[0][S01]a [1.2.3] [1:2:3:4]", "[ a [1.2.3] [1:2:3:4]"),
        ("[" + "1" * 50 + "]", "[" + "1" * 50 + "]"),
        ("[0][S01][1]", ""),
    ],
)
def test_texts_without_marks(text: str, expected: str, size: int) -> None:
    assert unmarked(text, size) == expected


def test_words_come_at_once() -> None:
    found = Unmarked()
    assert found.add("[0.28][S01]Hel", ends=False) == "Hel"
    assert found.add("lo [1", ends=False) == "lo"
    assert found.add(" there", ends=False) == " [1 there"
