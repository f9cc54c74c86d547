"""Synthetic traffic for the prefix cache, of kinds that recorded conversations do not show.

Times only decide the order of requests: each is computed before the next one arrives.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from tools.bench.prefix_cache.conversations import TraceRow

_MAX_PROMPT = 32768  # tokens; a conversation ends beyond

Segment: TypeAlias = tuple[int, int]  # content, tokens


@dataclass(slots=True)
class Talk:
    """A conversation: the prompt of its next request is all content so far and a new turn."""

    content: list[Segment] = field(default_factory=list[Segment])
    turns_left: int = 1


class Contents:
    """Contents of random lengths, in tokens."""

    def __init__(self, random: Random) -> None:
        """Takes the source of the lengths."""
        self._random = random
        self._count = 0

    def new(self, tokens: float) -> Segment:
        """Returns a content of this length."""
        self._count += 1
        return (self._count, max(1, int(tokens)))

    def about(self, mean: float, sigma: float = 0.8) -> Segment:
        """Returns one whose length is log-normal with this mean."""
        return self.new(lognormal(self._random, mean, sigma))


def lognormal(random: Random, mean: float, sigma: float) -> float:
    """Returns a log-normal value with this mean; `sigma` is the deviation of its logarithm."""
    return random.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


def converse(
    starts: list[tuple[float, Talk]],
    turn: Callable[[Talk], tuple[Segment, Segment]],
    pause: Callable[[], float],
) -> Iterator[TraceRow]:
    """Yields the requests of conversations in the order of their times.

    Args:
      starts: time in seconds and conversation.
      turn: the next (question, answer) of a conversation.
      pause: seconds until its next request.
    """
    waiting = [(time, number, talk) for number, (time, talk) in enumerate(starts)]
    heapq.heapify(waiting)
    number = len(waiting)
    while waiting:
        time, _, talk = heapq.heappop(waiting)
        question, answer = turn(talk)
        talk.content = [*talk.content, question]
        prompt = sum(tokens for _, tokens in talk.content)
        talk.content = [*talk.content, answer]
        yield (0, 0, talk.content, prompt, answer[1])
        talk.turns_left -= 1
        if talk.turns_left > 0 and prompt < _MAX_PROMPT:
            number += 1
            heapq.heappush(waiting, (time + pause(), number, talk))


def agents(seed: int) -> Iterator[TraceRow]:
    """Yields requests of agents: 8 system prompts with tools, tasks in bursts, many short turns.

    A popular system prompt (Zipf) of 3,000 to 12,000 tokens, a task of 800, then 4 to 30 turns of
    500 tokens (results of a tool) and 120 (the next call), 8 s apart.
    """
    random = Random(seed)
    contents = Contents(random)
    systems = [contents.new(random.uniform(3000, 12000)) for _ in range(8)]
    starts: list[tuple[float, Talk]] = []
    time = 0.0
    for _ in range(400):
        time += random.expovariate(1 / 120)
        system = systems[min(int(random.paretovariate(1.0)), len(systems)) - 1]
        for _ in range(random.randint(1, 12)):
            talk = Talk([system, contents.about(800)], random.randint(4, 30))
            starts.append((time + random.uniform(0, 5), talk))
    return converse(
        starts,
        lambda _: (contents.about(500), contents.about(120)),
        lambda: lognormal(random, 8, 1.2),
    )


def chats(seed: int, with_batches: bool = False) -> Iterator[TraceRow]:
    """Yields requests of conversations that return after pauses with a heavy tail.

    A conversation begins every 10 s and has 6 turns in the mean (geometric); a pause is 20 s at
    least (Pareto, 1.1). `with_batches`: after every 100 conversations, 60 prompts of 4,000 tokens
    that occur once, half a second apart.
    """
    random = Random(seed)
    contents = Contents(random)
    systems = [contents.new(1000) for _ in range(4)]
    starts: list[tuple[float, Talk]] = []
    time = 0.0
    for number in range(5000):
        time += random.expovariate(1 / 10)
        turns = 1 + int(math.log(1 - random.random()) / math.log(1 - 1 / 6))
        starts.append((time, Talk([systems[random.randrange(4)]], turns)))
        if with_batches and number % 100 == 50:
            starts += [(time + k / 2, Talk()) for k in range(60)]

    def turn(talk: Talk) -> tuple[Segment, Segment]:
        once = not talk.content
        return contents.about(4000 if once else 400), contents.about(300)

    return converse(starts, turn, lambda: 20 * random.paretovariate(1.1))


def documents(seed: int) -> Iterator[TraceRow]:
    """Yields questions about 600 documents of 4,000 tokens, popular ones more often (Zipf, 0.9)."""
    random = Random(seed)
    contents = Contents(random)
    system = contents.new(500)
    texts = [contents.about(4000, 0.6) for _ in range(600)]
    weights = [(rank + 1) ** -0.9 for rank in range(len(texts))]
    while True:
        (text,) = random.choices(texts, weights)
        prompt = [system, text, contents.about(60)]
        yield (0, 0, [*prompt, contents.new(150)], sum(tokens for _, tokens in prompt), 150)


def twice(seed: int) -> Iterator[TraceRow]:
    """Yields two questions about each document of 3,000 tokens, 100 s apart in the mean, one
    document a second: what was used again has no further use."""
    random = Random(seed)
    contents = Contents(random)
    starts = [(float(i), Talk([contents.about(3000, 0.5)], 2)) for i in range(5000)]
    return converse(
        starts,
        lambda _: (contents.new(60), contents.new(100)),
        lambda: random.expovariate(1 / 100),
    )


LOADS: dict[str, Callable[[int], Iterator[TraceRow]]] = {
    "agents": agents,
    "chats": chats,
    "chats, batches": lambda seed: chats(seed, with_batches=True),
    "documents": documents,
    "twice": twice,
}
