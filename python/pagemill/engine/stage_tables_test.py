"""Tables of stages that page alike are one KV group."""

from pagemill import _native
from pagemill.engine.stage_tables import StageTables

FULL = _native.KvGroupOptions(block_size=16)
LARGE = _native.KvGroupOptions(block_size=32)
WINDOW = _native.KvGroupOptions(kind="sliding_window", block_size=16, window_tokens=64)
STATE = _native.KvGroupOptions(kind="state_space", block_size=16, recent_states=1)


def kinds(tables: StageTables) -> list[tuple[str, int]]:
    return [(group.kind, group.block_size) for group in tables.groups]


def test_equal_stages_have_the_groups_of_one() -> None:
    tables = StageTables.of([[FULL, WINDOW], [FULL, WINDOW]])
    assert kinds(tables) == [("full", 16), ("sliding_window", 16)]
    assert tables.of_stages == [[0, 1], [0, 1]]


def test_tables_of_one_stage_stay_apart() -> None:
    tables = StageTables.of([[WINDOW], [FULL, WINDOW, WINDOW], [WINDOW, WINDOW]])
    assert kinds(tables) == [("sliding_window", 16), ("full", 16), ("sliding_window", 16)]
    assert tables.of_stages == [[0], [1, 0, 2], [0, 2]]


def test_tables_with_other_blocks_windows_or_states_are_groups_of_their_own() -> None:
    wider = _native.KvGroupOptions(kind="sliding_window", block_size=16, window_tokens=128)
    more = _native.KvGroupOptions(kind="state_space", block_size=16, recent_states=2)
    tables = StageTables.of([[FULL, WINDOW, STATE], [LARGE, wider, more]])
    assert tables.of_stages == [[0, 1, 2], [3, 4, 5]]


def test_a_stage_may_have_no_table() -> None:
    assert StageTables.of([[], [FULL]]).of_stages == [[], [0]]
