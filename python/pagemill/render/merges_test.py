"""Tests of pagemill.render.merges."""

import logging
from pathlib import Path

import pytest

from pagemill.render import merges as module
from pagemill.render.errors import RenderError
from pagemill.render.merges import derive_merges, kept_merges

TOKENS = ["a", "b", "ab", "abb", "bb"]
SCORES = [-9.0, -9.0, -2.0, -3.0, -1.0]
BY_SCORE = [("b", "b"), ("a", "b"), ("ab", "b"), ("a", "bb")]
BY_PLACE = [("a", "b"), ("ab", "b"), ("a", "bb"), ("b", "b")]


def fail(*_: object) -> None:
    raise AssertionError("they are derived again")


def test_derived() -> None:
    assert derive_merges(TOKENS, SCORES) == BY_SCORE
    assert derive_merges(TOKENS) == BY_PLACE


def test_kept_merges_are_not_derived_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "created" / "when needed"
    assert kept_merges(TOKENS, SCORES, folder) == BY_SCORE
    assert kept_merges(TOKENS, None, folder) == BY_PLACE
    monkeypatch.setattr(module, "derive_merges", fail)
    assert kept_merges(TOKENS, SCORES, folder) == BY_SCORE
    assert kept_merges(TOKENS, None, folder) == BY_PLACE
    assert len(list(folder.iterdir())) == 2, "nothing temporary is left"


def test_another_vocabulary_has_a_file_of_its_own(tmp_path: Path) -> None:
    kept_merges(TOKENS, SCORES, tmp_path)
    assert kept_merges(TOKENS, [-9.0, -9.0, -2.0, -1.0, -3.0], tmp_path) != BY_SCORE
    assert kept_merges(["a", "b", "ab"], SCORES[:3], tmp_path) == [("a", "b")]
    assert kept_merges(["a", "ba", "b"], None, tmp_path) == [("b", "a")]
    assert kept_merges(["ab", "a", "b"], None, tmp_path) == [("a", "b")]
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("offset", [0, 17, 20, 34, -1])
def test_a_damaged_file_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    kept_merges(TOKENS, SCORES, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[offset] ^= 1
    for content in (bytes(damaged), whole[:offset], b""):
        path.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert kept_merges(TOKENS, SCORES, tmp_path) == BY_SCORE
        assert f"{path} is damaged and is written again" in caplog.text
        assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    assert kept_merges(TOKENS, SCORES, file / "below") == BY_SCORE
    assert kept_merges(TOKENS, SCORES, None) == BY_SCORE


def test_scores_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="NaN"):
        kept_merges(TOKENS, [float("nan")] * 5, tmp_path)
