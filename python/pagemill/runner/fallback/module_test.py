"""The layout of pages, and the memory of a module."""

from pagemill.runner.fallback.module import LayerSpec, PageLayout, Place


def _layer(window: int = 0, kv_heads: int = 2, head_dim: int = 8, value_dim: int = 8) -> LayerSpec:
    return LayerSpec("attention", 4, kv_heads, head_dim, value_dim, window, scores=False)


def test_no_layers():
    assert PageLayout.of([]) == PageLayout(0, (), (), ())


def test_equal_layers_share_a_table():
    layout = PageLayout.of([_layer(), _layer(), _layer()])
    assert layout == PageLayout(96, (0,), (1,), (Place(0, 0), Place(0, 32), Place(0, 64)))


def test_keys_and_values_of_different_widths_are_stored_alike():
    assert PageLayout.of([_layer(value_dim=6)]).row_elements == 32
    assert PageLayout.of([_layer(value_dim=10)]).row_elements == 40


def test_windows_have_tables_of_their_own_on_pages_of_the_smaller_group():
    layers = [_layer(7), _layer(7), _layer(), _layer(7), _layer(7)]
    layout = PageLayout.of(layers)
    # Four layers with windows and one without: pages of one layer waste nothing.
    assert layout.row_elements == 32 and layout.windows == (7, 7, 0, 7, 7)
    layout = PageLayout.of([*layers, _layer()])
    assert layout.row_elements == 64 and layout.windows == (7, 0, 7)
    assert layout.places == (
        Place(0, 0),
        Place(0, 32),
        Place(1, 0),
        Place(2, 0),
        Place(2, 32),
        Place(1, 32),
    )


def test_pages_hold_the_largest_layer():
    layout = PageLayout.of([_layer(7, kv_heads=4), _layer(kv_heads=12)])
    assert layout.row_elements == 192 and layout.windows == (7, 0)
    # Those of smaller layers hold more tokens: a power of two, where rows are whole.
    assert layout.times == (2, 1)
    assert PageLayout.of([_layer(7, kv_heads=1), _layer(kv_heads=12)]).times == (8, 1)
    assert PageLayout.of([_layer(7, kv_heads=1), _layer(kv_heads=5)]).times == (4, 1)


def test_no_two_layers_overlap():
    layers = [_layer(w, h) for w, h in ((0, 1), (7, 3), (0, 2), (9, 1), (7, 1), (0, 4), (9, 4))]
    layout = PageLayout.of(layers)
    taken: set[tuple[int, int]] = set()
    for layer, place in zip(layers, layout.places, strict=True):
        assert layout.windows[place.table] == layer.window
        own = {(place.table, place.offset + i) for i in range(layer.row_elements)}
        assert not own & taken and max(own)[1] < layout.row_elements // layout.times[place.table]
        taken |= own
