"""Conversations as traces."""

from tools.bench.prefix_cache.conversations import (
    Message,
    common_starts,
    interleave,
    requests_of,
)

FIRST = [
    Message(False, (1,), (10, 11, 12)),
    Message(True, (2,), (20, 21)),
    Message(False, (1,), (5,)),
]
SECOND = [
    Message(False, (1,), (10, 11, 99)),
    Message(True, (2,), (30,)),
    Message(True, (2,), (31,)),
]


def test_an_answer_is_a_request_with_all_before_it_in_its_prompt() -> None:
    (row,) = requests_of(FIRST, [])
    assert (row[3], row[4]) == (5, 2)
    assert [tokens for _, tokens in row[2]] == [1, 3, 1, 2]
    earlier, later = requests_of(SECOND, [])
    assert later[2][: len(earlier[2])] == earlier[2]
    assert (later[3], later[4]) == (7, 1)


def test_conversations_share_contents_up_to_where_they_part() -> None:
    cuts = common_starts([FIRST, SECOND])
    assert cuts == [3]
    contents = [[content for content, _ in requests_of(c, cuts)[0][2]] for c in (FIRST, SECOND)]
    assert contents[0][:2] == contents[1][:2]
    assert contents[0][2] != contents[1][2]


def test_conversations_take_turns_and_the_next_begins_where_one_ends() -> None:
    rows = {name: requests_of(c, []) for name, c in {"a": FIRST, "b": SECOND, "c": FIRST}.items()}
    order = interleave(list(rows.values()), 2)
    assert order == [rows["a"][0], rows["b"][0], rows["b"][1], rows["c"][0]]
    assert interleave(list(rows.values()), 1) == [*rows["a"], *rows["b"], *rows["c"]]
