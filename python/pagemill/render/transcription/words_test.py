"""Words of the tokens of a text; each token of these tests is a byte, or several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pagemill.render.transcription.words import words


def found(pieces: Sequence[bytes], language: str | None = "en") -> list[str]:
    """The words of the text whose tokens stand for `pieces`."""

    def decode(token_ids: Sequence[int]) -> str:
        return b"".join(pieces[i] for i in token_ids).decode(errors="replace")

    groups = words(decode, range(len(pieces)), language)
    assert [at for group in groups for at in group] == list(range(len(pieces)))
    return [decode(group) for group in groups]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        ([b" he", b"llo", b" world"], [" hello", " world"]),
        ([b"he", b"llo"], ["hello"]),
        ([b" yes", b",", b" no", b".", b".", b"."], [" yes,", " no..."]),
        ([b' "', b"Yes", b'"', b" (", b"a", b")", b"?"], [' "Yes"', " (a)?"]),
        ([b" 3", b"%", b" of", b" $", b"5"], [" 3", "%", " of", " $5"]),
        ([b" ", b"a"], [" a"]),
        ([b" a", b" "], [" a", " "]),
        ([b" ca", b"f\xc3", b"\xa9", b"s", b"!"], [" caf\xe9s!"]),
        ([b" a", b"\xc3"], [" a\ufffd"]),
        ([b" \xef\xbf\xbd", b"x"], [" \ufffdx"]),
    ],
)
def test_words_begin_with_spaces(pieces: list[bytes], expected: list[str]) -> None:
    assert found(pieces) == expected
    assert found(pieces, None) == expected


def test_characters_of_languages_without_spaces() -> None:
    pieces = [bytes([byte]) for byte in "你好，世界。".encode()]
    for language in ("zh", "ja", "yue", "th", "lo", "my"):
        assert found(pieces, language) == ["你", "好，", "世", "界。"]
    assert found(pieces, "de") == ["你好，世界。"]
    assert found(["今日".encode(), b"a", b"bc"], "ja") == ["今日", "a", "bc"]
