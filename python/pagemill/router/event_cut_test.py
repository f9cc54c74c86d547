"""A stream is passed on event by event, whatever the parts it arrives in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagemill.router.event_cut import MAX_HELD_BYTES, EventCut

EVENTS = [b"data: a\n\n", b"event: x\ndata: {}\n\n", b"data: [DONE]\n\n"]


@given(st.lists(st.sampled_from(EVENTS)), st.data())
def test_what_is_sent_ends_with_an_event(events: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    cut, sent, received = EventCut(), b"", b""
    for part in parts:
        sent += cut.push(part)
        received += part
        # All whole events and nothing else.
        assert sent == received[: received.rfind(b"\n\n") + 2 if b"\n\n" in received else 0]
        assert cut.between_events
    assert sent + cut.rest() == stream


def test_what_is_held_back_is_bounded() -> None:
    cut = EventCut()
    assert cut.push(b"x" * MAX_HELD_BYTES) == b""
    assert len(cut.push(b"y")) == MAX_HELD_BYTES + 1
    assert not cut.between_events
    assert cut.push(b"z\n\n") == b"z\n\n"
    assert cut.between_events
