"""Bodies of `/v1/systemone`: questions about a state, each answered by one of a few labels."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.config.sampling import INT32_MAX
from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.sampling import Timeout

MAX_QUESTIONS = 64
MAX_OPTIONS = 26
MAX_LEVELS = 10

QuestionId = Annotated[str, Meta(min_length=1, max_length=128)]
MediaUrl = str | dict[str, Any]
"""A URL, or an object with one, as parts of messages have it."""


class ChoiceQuestion(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="choice"):
    """Which of some options it is. `criteria`: what each means, null: its name says it."""

    criteria: Annotated[dict[str, str | None], Meta(min_length=2, max_length=MAX_OPTIONS)]
    instructions: str | None = None


class BooleanCriteria(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the answers of a question of yes or no mean."""

    true: str | None = None
    false: str | None = None


class BooleanQuestion(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="noul"):
    """Whether it is so."""

    instructions: Annotated[str, Meta(min_length=1)]
    criteria: BooleanCriteria = BooleanCriteria()


class ScoreQuestion(msgspec.Struct, kw_only=True, frozen=True, tag_field="type", tag="score"):
    """How much it is. `criteria`: the levels, from the lowest to the highest."""

    criteria: Annotated[list[str], Meta(min_length=2, max_length=MAX_LEVELS)]
    instructions: str | None = None


Question = ChoiceQuestion | BooleanQuestion | ScoreQuestion


class StructuredDecisionRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The request. `state` is a text, or any JSON value, whose text the model reads."""

    state: Any
    questions: Annotated[dict[QuestionId, Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    instructions: str | None = None
    images: list[MediaUrl] = []
    audio: list[MediaUrl] = []
    videos: list[MediaUrl] = []
    model: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""


RULES = FieldRules(unsupported={}, ignored=frozenset({"user"}))


class ChoiceAnswer(msgspec.Struct, kw_only=True, tag_field="type", tag="choice"):
    """The likeliest option, and the probability of each among them."""

    choice: str
    probabilities: dict[str, float]
    confidence: float


class BooleanAnswer(msgspec.Struct, kw_only=True, tag_field="type", tag="noul"):
    """The probability of yes."""

    noul: float
    probabilities: dict[str, float]
    confidence: float


class ScoreAnswer(msgspec.Struct, kw_only=True, tag_field="type", tag="score"):
    """The expected number of the level, from 0; `legend` has the level of each number."""

    score: float
    legend: dict[str, str]
    probabilities: dict[str, float]
    confidence: float


Decision = ChoiceAnswer | BooleanAnswer | ScoreAnswer


class DecisionDiagnostics(msgspec.Struct):
    """How much of the model's answer the labels are: their probability among all tokens, and
    whether the likeliest token is one of them."""

    label_mass: float
    argmax_is_label: bool


class DecisionUsage(msgspec.Struct):
    """Tokens of all questions."""

    input_tokens: int
    output_tokens: int


class StructuredDecisionResponse(msgspec.Struct, kw_only=True):
    """The response: an answer to each question."""

    id: str
    model: str
    answers: dict[str, Decision]
    usage: DecisionUsage
    diagnostics: dict[str, DecisionDiagnostics]
    object: str = "structured_decision"
