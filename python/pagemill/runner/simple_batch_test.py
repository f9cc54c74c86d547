"""Batches have the meaning that `cc/ops/batch_view.h` gives them."""

import pytest

from pagemill.runner.simple_batch import SimpleBatch


def test_batch_arrays():
    batches = SimpleBatch(num_blocks=8, block_size=2)
    batches.step({4: [10, 11, 12]})
    batch = batches.step({4: [13, 14], 7: [20]})
    assert batch["token_ids"].tolist() == [13, 14, 20]
    assert batch["positions"].tolist() == [3, 4, 0]
    assert batch["query_start"].tolist() == [0, 2, 3]
    assert batch["seq_lens"].tolist() == [5, 1]
    assert batch["logits_rows"].tolist() == [1, 2]
    (kv,) = batch["kv"]
    assert (kv["block_size"], kv["num_common_blocks"]) == (2, 0)
    table = kv["block_table"]
    assert table.shape == (2, 3) and table[1, 1:].tolist() == [0, 0]
    used = [*table[0], table[1, 0]]
    assert len(set(used)) == 4 and min(used) >= 1 and max(used) <= 7
    slots = [2 * table[0, 1] + 1, 2 * table[0, 2], 2 * table[1, 0]]
    assert kv["slot_mapping"].tolist() == slots
    assert batches.step({7: [1, 2]}, all_logits=True)["logits_rows"].tolist() == [0, 1]


def test_tables_have_blocks_of_their_own():
    batches = SimpleBatch(num_blocks=12, block_size=[2, 4])
    small, large = batches.step({0: [1, 2, 3, 4, 5]})["kv"]
    assert small["block_table"].shape == (1, 3) and large["block_table"].shape == (1, 2)
    assert not set(small["block_table"][0]) & set(large["block_table"][0])
    assert large["slot_mapping"][4] == 4 * large["block_table"][0, 1]


def test_blocks_come_back():
    batches = SimpleBatch(num_blocks=4, block_size=2)
    for request in range(5):
        batches.step({request: [1] * 6})
        batches.free(request)
    batches.step({9: [1] * 6})
    with pytest.raises(IndexError):
        batches.step({9: [1]})
