"""Subtitles."""

from __future__ import annotations

from pagemill.server.speech.subtitles import Line, srt, vtt

LINES = [Line(0.0, 1.5, " Hello,\n\nworld "), Line(3661.0004, 3662.9996, "1 --> 2")]


def test_srt() -> None:
    assert srt(LINES) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello, world\n\n"
        "2\n01:01:01,000 --> 01:01:03,000\n1 -> 2\n\n"
    )
    assert srt([]) == ""


def test_vtt() -> None:
    assert vtt(LINES) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello, world\n\n"
        "01:01:01.000 --> 01:01:03.000\n1 -> 2\n\n"
    )
    assert vtt([]) == "WEBVTT\n\n"
