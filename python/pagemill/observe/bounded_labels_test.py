"""Labels have at most as many values as allowed, whatever clients send."""

from pathlib import Path

from pagemill.observe.bounded_labels import OTHER, BoundedLabels


def test_further_values_are_other() -> None:
    labels = BoundedLabels(2)
    assert labels.of("a", "x") == ("a", "x")
    assert labels.of("b", "x") == ("b", "x")
    assert labels.of("c", "x") == (OTHER, OTHER)
    assert labels.of("a", "x") == ("a", "x")
    found = {labels.of(str(i), str(i)) for i in range(1000)}
    assert found == {(OTHER, OTHER)}


def test_none_has_a_name_without_room() -> None:
    assert BoundedLabels(0).of("a") == (OTHER,)


def test_processes_agree_on_the_values(tmp_path: Path) -> None:
    folder = str(tmp_path / "tenants")
    first, second = BoundedLabels(2, folder), BoundedLabels(2, folder)
    assert first.of("a") == ("a",)
    assert second.of("../b") == ("../b",)  # a name of a file that nothing can escape with
    assert first.of("c") == second.of("c") == (OTHER,)
    assert first.of("../b") == ("../b",)
    assert second.of("a") == ("a",)
    started_again = BoundedLabels(2, folder)
    assert started_again.of("d") == (OTHER,)
    assert started_again.of("a") == ("a",)
    assert len(list((tmp_path / "tenants").iterdir())) == 2
