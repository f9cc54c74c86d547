"""Several constraints on one output: a token may come if all of them allow it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.engine.token_matcher import TokenMatcher, TokenMatcherFactory


def joint_factory(factories: Sequence[TokenMatcherFactory]) -> TokenMatcherFactory | None:
    """Makes matchers that allow what those of all `factories` allow; None without any."""
    if len(factories) < 2:
        return factories[0] if factories else None
    return lambda: JointMatcher([make() for make in factories])


class JointMatcher:
    """The states of one output. Implements `TokenMatcher`."""

    def __init__(self, matchers: Sequence[TokenMatcher]) -> None:
        """`matchers`: two or more, which have accepted nothing."""
        self._matchers = matchers
        self._other = np.zeros(0, np.uint32)  # the mask of each but the first

    def fill_mask(self, mask: np.ndarray) -> None:
        """See `TokenMatcher`."""
        if self._other.size != mask.size:
            self._other = np.zeros_like(mask)
        first, *others = self._matchers
        first.fill_mask(mask)
        for matcher in others:
            matcher.fill_mask(self._other)
            mask &= self._other

    def accept(self, token_id: int) -> bool:
        """See `TokenMatcher`."""
        for index, matcher in enumerate(self._matchers):
            if not matcher.accept(token_id):
                for earlier in self._matchers[:index]:
                    earlier.rollback(1)
                return False
        return True

    def rollback(self, num_tokens: int) -> None:
        """See `TokenMatcher`."""
        for matcher in self._matchers:
            matcher.rollback(num_tokens)

    def forced(self, most: int) -> Sequence[int]:
        """The guess of the first that has one; a step verifies it with the masks of all."""
        for matcher in self._matchers:
            if found := matcher.forced(most):
                return found
        return ()
