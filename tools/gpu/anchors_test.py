"""What is shown of a profile."""

from tools.gpu.anchors import timeline


def test_a_timeline_is_of_kernels_in_the_middle_in_their_order():
    spans = [(f"kernel {i}", 100.0 + 2 * i, 1.5) for i in range(100)]
    shown = timeline(spans[::-1])
    assert shown[:2] == [("kernel 50", 0, 1.5), ("kernel 51", 2, 1.5)] and len(shown) == 32


def test_a_profile_without_kernels_has_an_empty_timeline():
    assert timeline([]) == []
