"""Division of a dimension among ranks."""

import pytest

from pagemill.ops import all_gather, all_reduce
from pagemill.ops.shard import Axis, Part, Shard
from pagemill.ops.trace import Trace


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(("total", "unit"), [(83, 1), (96, 32), (1536, 256), (130, 32), (4, 1)])
def test_parts_tile_the_dimension_in_whole_units(ranks: int, total: int, unit: int):
    if -(-total // unit) < ranks:
        with pytest.raises(ValueError, match=f"a dimension of {total} in units of {unit} cannot"):
            Shard(0, ranks).part(total, unit)
        return
    parts = [Shard(rank, ranks).part(total, unit) for rank in range(ranks)]
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == total
    assert all(part.begin % unit == 0 and part.size > 0 for part in parts)
    sizes = [-(-part.size // unit) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_ranks_divide_the_features_of_experts_or_the_experts():
    assert Shard(1, 2).experts(5) == Part(0, 5, 5)
    assert Shard(1, 2).expert_features(96, 32) == Part(32, 96, 96)
    ranks = [Shard(rank, 2, whole_experts=True) for rank in range(2)]
    assert [rank.experts(5) for rank in ranks] == [Part(0, 2, 5), Part(2, 5, 5)]
    assert ranks[1].expert_features(96, 128) == Part(0, 96, 96)
    with pytest.raises(ValueError, match="1 experts .* 2 ranks: leave out --enable-expert-parall"):
        ranks[0].experts(1)


def test_a_group_of_one_has_the_whole():
    assert Shard().part(7, 4) == Part(0, 7, 7)
    assert Shard().part(7).whole
    assert not Shard(0, 2).part(8).whole


@pytest.mark.parametrize(("rank", "ranks"), [(2, 2), (-1, 2), (0, 0)])
def test_a_group_has_its_ranks_and_no_others(rank: int, ranks: int):
    with pytest.raises(ValueError, match=f"a group of {ranks} ranks has no rank {rank}"):
        Shard(rank, ranks)


def test_collectives_name_the_axis_of_their_group():
    trace = Trace()
    shard = Shard(1, 4, Axis.DATA)
    x = all_reduce(trace.input("x", "act", ("tokens", 8)), shard=shard)
    all_gather(x, 32, shard=shard)
    attributes = [dict(op.attributes) for op in trace.program.ops]
    assert attributes == [{"axis": 2, "ranks": 4}, {"axis": 2, "ranks": 4, "rank": 1}]
