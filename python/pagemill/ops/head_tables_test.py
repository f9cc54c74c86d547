"""Tables of heads are what their definition says, computed from no more rows than they have."""

import numpy as np

from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import Part

ROWS = [7, 2, 2, 4]
TABLES = HeadTables("layer", "table", (9, 6), ROWS, Part(1, 3, 3), 4, 0.5, norm="norm", eps=0.25)


def _stored() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    shapes = TABLES.stored_shapes().items()
    return {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes}


def test_tables_are_products_of_normalized_rows():
    stored = _stored()
    result = TABLES.computed(stored)
    assert result.shape == TABLES.result_shape == (2, 4, 4)
    for place, row in enumerate(ROWS):
        values = stored["table"][row].astype(np.float64)
        values = (values - values.mean()) / np.sqrt(values.var() + 0.25)
        values = values * stored["norm.weight"] + stored["norm.bias"]
        for head in (1, 2):
            own = slice(4 * head, 4 * head + 4)
            expected = stored["layer.weight"][own] @ values + stored["layer.bias"][own]
            np.testing.assert_allclose(result[head - 1, place], expected / 2, atol=1e-5)  # f32


def test_tables_of_values_and_a_layer_without_a_bias():
    values = np.random.default_rng(6).standard_normal((9, 6), dtype=np.float32)
    tables = HeadTables(
        "layer", "waves", (9, 6), ROWS, Part(1, 3, 3), 4, 0.5, bias=False, values=values
    )
    assert tables.stored_shapes() == {"layer.weight": (12, 6)}
    weight = _stored()["layer.weight"]
    expected = (values[ROWS] @ weight[4:].T / 2).reshape(4, 2, 4).transpose(1, 0, 2)
    np.testing.assert_allclose(tables.computed({"layer.weight": weight}), expected, atol=1e-5)


def test_rows_of_no_distance_are_not_computed():
    """A checkpoint may state far more of them than its texts have."""
    stored = _stored()
    expected = TABLES.computed(stored)
    stored["table"][[i for i in range(9) if i not in ROWS]] = np.finfo(np.float32).max
    with np.errstate(over="raise", invalid="raise"):
        np.testing.assert_array_equal(TABLES.computed(stored), expected)
