"""Several constraints: what all allow may come, and going back is going back in all."""

from __future__ import annotations

import numpy as np

from pagemill.engine.joint_matcher import JointMatcher, joint_factory

VOCAB = 64


class Multiples:
    """Tokens that are multiples of a number, `most` of them."""

    def __init__(self, number: int, most: int = 100) -> None:
        self.tokens: list[int] = []
        self._number, self._most = number, most

    def fill_mask(self, mask: np.ndarray) -> None:
        bits = [self._fits(token) for token in range(VOCAB)]
        mask.view(np.uint8)[:] = np.packbits(bits, bitorder="little")

    def accept(self, token_id: int) -> bool:
        if not self._fits(token_id):
            return False
        self.tokens.append(token_id)
        return True

    def rollback(self, num_tokens: int) -> None:
        del self.tokens[len(self.tokens) - num_tokens :]

    def forced(self, most: int) -> list[int]:
        return [self._number][:most] if self._number > 3 else []

    def _fits(self, token: int) -> bool:
        return token % self._number == 0 and len(self.tokens) < self._most


def allowed(matcher: JointMatcher) -> set[int]:
    mask = np.full(VOCAB // 32, 0xFFFFFFFF, np.uint32)
    matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def test_a_token_may_come_if_all_allow_it() -> None:
    parts = Multiples(2), Multiples(3, most=2), Multiples(5)
    joint = JointMatcher(parts)
    assert allowed(joint) == {0, 30, 60}
    for token in range(VOCAB):
        before = [list(part.tokens) for part in parts]
        if joint.accept(token):
            assert token in (0, 30)
        else:
            assert [part.tokens for part in parts] == before
    assert allowed(joint) == set()
    assert not joint.accept(60)
    joint.rollback(1)
    assert [part.tokens for part in parts] == [[0]] * 3
    assert allowed(joint) == {0, 30, 60}
    assert list(joint.forced(4)) == [5]
    assert list(JointMatcher(parts[:2]).forced(4)) == []


def test_one_factory_stays_as_it_is() -> None:
    def make() -> Multiples:
        return Multiples(2)

    assert joint_factory([]) is None
    assert joint_factory([make]) is make  # one in C++ runs without Python
    both = joint_factory([make, lambda: Multiples(7)])
    assert both is not None
    matcher = both()
    assert isinstance(matcher, JointMatcher) and allowed(matcher) == {0, 14, 28, 42, 56}
