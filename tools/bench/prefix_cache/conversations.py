"""Conversations of token ids as a trace for the simulator.

A conversation is a list of messages; an assistant's message is the answer to the request that
contains all messages before it, which is the traffic of an agent at a server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

# (time in ns, session or 0, [(content, tokens)], prompt tokens, output tokens)
TraceRow: TypeAlias = tuple[int, int, list[tuple[int, int]], int, int]


@dataclass(frozen=True, slots=True)
class Message:
    """`header` comes before an answer, in the prompt; `body` is the answer, or the user's text."""

    is_answer: bool
    header: tuple[int, ...]
    body: tuple[int, ...]


Conversation: TypeAlias = Sequence[Message]


def requests_of(conversation: Conversation, cuts: Sequence[int]) -> list[TraceRow]:
    """Returns one row for each answer.

    Args:
      conversation: its messages.
      cuts: token positions at which contents are split, so that conversations which begin alike
        share the content before a cut; see `common_starts`.
    """
    rows: list[TraceRow] = []
    content: list[tuple[int, int]] = []
    tokens: list[int] = []
    for message in conversation:
        for part in (message.header, message.body):
            if part is message.body and message.is_answer and part:
                rows.append(
                    (0, 0, [*content, *_segments(tokens, part, cuts)], len(tokens), len(part))
                )
            content += _segments(tokens, part, cuts)
            tokens += part
    return rows


def common_starts(conversations: Sequence[Conversation]) -> list[int]:
    """Returns the positions at which any two conversations diverge, ascending."""
    starts = [_tokens(conversation) for conversation in conversations]
    # Neighbours in sorted order have the longest common prefixes.
    starts.sort()
    lengths = {_common(first, second) for first, second in zip(starts, starts[1:], strict=False)}
    return sorted(lengths - {0})


def interleave(requests: Sequence[Sequence[TraceRow]], at_once: int) -> list[TraceRow]:
    """Returns the requests of conversations, `at_once` of which take turns; the next one begins
    when one ends."""
    waiting = [list(rows) for rows in reversed(requests)]
    going = [waiting.pop() for _ in range(min(at_once, len(waiting)))]
    order: list[TraceRow] = []
    while going:
        order += [rows.pop(0) for rows in going]
        going = [rows for rows in going if rows]
        while waiting and len(going) < at_once:
            going.append(waiting.pop())
    return order


def _segments(
    before: Sequence[int], part: Sequence[int], cuts: Sequence[int]
) -> list[tuple[int, int]]:
    begin, end = len(before), len(before) + len(part)
    borders = [begin, *(cut for cut in cuts if begin < cut < end), end]
    found: list[tuple[int, int]] = []
    for low, high in zip(borders, borders[1:], strict=False):
        if low < high:
            text = repr(part[low - begin : high - begin]).encode()
            digest = blake2b(text, digest_size=8).digest()
            found.append((int.from_bytes(digest, "little"), high - low))
    return found


def _tokens(conversation: Conversation) -> tuple[int, ...]:
    return tuple(t for message in conversation for t in (*message.header, *message.body))


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count
