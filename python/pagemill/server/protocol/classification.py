"""Bodies of `/classify`."""

from __future__ import annotations

import msgspec

from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.pooling import (
    COMMON_IGNORED,
    COMMON_UNSUPPORTED,
    InputFields,
    PoolingUsage,
)


class ClassificationRequest(InputFields, kw_only=True):
    """The request; without `use_activation` probabilities are logits."""

    use_activation: bool = True


RULES = FieldRules(unsupported=COMMON_UNSUPPORTED, ignored=COMMON_IGNORED)


class Classification(msgspec.Struct):
    """The most probable class of one input, and the probabilities of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassificationResponse(msgspec.Struct):
    """The response."""

    id: str
    created: int
    model: str
    data: list[Classification]
    usage: PoolingUsage
    object: str = "list"
