"""Synthetic traffic of the prefix-cache study."""

from itertools import islice

import pytest

from tools.bench.prefix_cache.synthetic import LOADS, Talk, converse


@pytest.mark.parametrize("name", LOADS)
def test_a_load_is_the_same_each_time_and_shares_content(name: str) -> None:
    rows = list(islice(LOADS[name](3), 500))
    assert len(rows) == 500
    assert rows == list(islice(LOADS[name](3), 500))
    assert rows != list(islice(LOADS[name](4), 500))
    lengths: dict[int, int] = {}
    num_found = 0
    for _, _, content, num_prompt, num_output in rows:
        # The answer is the last content, and equal contents have equal lengths.
        assert sum(tokens for _, tokens in content) == num_prompt + num_output
        num_found += content[0][0] in lengths
        for number, tokens in content:
            assert lengths.setdefault(number, tokens) == tokens
    assert num_found > 50


def test_a_conversation_continues_from_its_answer_after_its_pause() -> None:
    numbers = iter(range(1, 100))

    def turn(_: Talk) -> tuple[tuple[int, int], tuple[int, int]]:
        return (next(numbers), 10), (next(numbers), 5)

    rows = list(converse([(0.0, Talk([], 2)), (1.0, Talk([], 2))], turn, lambda: 3.0))
    assert [row[2] for row in rows] == [
        [(1, 10), (2, 5)],
        [(3, 10), (4, 5)],
        [(1, 10), (2, 5), (5, 10), (6, 5)],
        [(3, 10), (4, 5), (7, 10), (8, 5)],
    ]
    assert [(row[3], row[4]) for row in rows] == [(10, 5), (10, 5), (25, 5), (25, 5)]
