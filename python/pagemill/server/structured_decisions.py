"""Questions about a state that a chat model answers by one token each.

Each question is a chat that ends with it, so that all share the prefix that has the state. The next
token's log probabilities of the labels (letters, digits, or yes and no) are the answer; nothing
else is generated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pagemill.config.sampling import LOGPROBS_MODES
from pagemill.engine.outputs import TokenLogprobs
from pagemill.engine.sampling import SamplingParams
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.access.caller import Caller
from pagemill.server.chat import MAX_SHARED_BYTES, check_chat, read_media, rendered_prompt
from pagemill.server.errors import ApiError, bad_request, renamed
from pagemill.server.generative_scores import next_tokens
from pagemill.server.logprobs import FLOOR
from pagemill.server.media_work import MediaBudget
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.structured_decision import (
    BooleanAnswer,
    BooleanQuestion,
    ChoiceAnswer,
    ChoiceQuestion,
    Decision,
    DecisionDiagnostics,
    DecisionUsage,
    Question,
    ScoreAnswer,
    ScoreQuestion,
    StructuredDecisionRequest,
)
from pagemill.server.time_limit import in_time

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_YES, _NO = "yes", "no"
_PARTS = {"images": "image_url", "audio": "audio_url", "videos": "video_url"}
_ASKS = "Read the state below, and answer the question behind it by one label and nothing else."


class Decisions(NamedTuple):
    """What `decide` finds, by the names of the questions."""

    answers: dict[str, Decision]
    diagnostics: dict[str, DecisionDiagnostics]
    usage: DecisionUsage


class _Labelled(NamedTuple):
    """A question's text, and its labels, each with what the answer calls it."""

    text: str
    labels: Sequence[str]
    names: Sequence[str]


async def decide(pipeline: Pipeline, body: StructuredDecisionRequest, caller: Caller) -> Decisions:
    """Answers all questions.

    Raises:
        ApiError: the request cannot be served.
    """
    questions = {name: _labelled(question) for name, question in body.questions.items()}
    pipeline.check_choices(len(questions), 1, "questions")
    shared = _shared_text(body, len(questions))
    media = _media_parts(body)
    deadline = pipeline.deadline(body.timeout, caller)
    with _renamed(media):
        async with in_time(deadline):
            tokens = await _label_tokens(pipeline, questions.values())
            parts = [part for _, part in media]
            prompts = await _prompts(pipeline, body, caller, shared, parts, questions.values())
    options = GenerationOptions(
        max_tokens=1,
        default_max_tokens=None,
        cache_salt=body.cache_salt or "",
        priority=body.priority,
        deadline=deadline,
        caller=caller,
        param="state",
    )
    entries: list[TokenLogprobs] = []
    usage = DecisionUsage(0, 0)
    # Each prompt carries its media to the engine.
    size = 1 if media else len(prompts)
    for start in range(0, len(prompts), size):
        generation = await pipeline.generate(
            prompts[start : start + size], _sampling(tokens.values()), options
        )
        try:
            entries += await next_tokens(generation)
        finally:
            generation.close()
            usage.input_tokens += generation.usage.prompt_tokens
            usage.output_tokens += generation.usage.completion_tokens
    found = Decisions({}, {}, usage)
    for (name, asked), entry in zip(questions.items(), entries, strict=True):
        ids = [tokens[label] for label in asked.labels]
        logprobs = dict(entry.top)
        values = np.array([logprobs[token] for token in ids])
        answer, mass = _answer(body.questions[name], asked, values)
        found.answers[name] = answer
        found.diagnostics[name] = DecisionDiagnostics(mass, entry.token_id in ids)
    return found


def _sampling(tokens: Iterable[int]) -> SamplingParams:
    """The likeliest token, whatever the model's defaults are, and log probabilities of `tokens`."""
    return SamplingParams(
        temperature=0.0,
        repetition_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        ignore_eos=True,
        logprobs=0,
        logprob_token_ids=sorted(tokens),
        logprobs_mode=LOGPROBS_MODES[0],
    )


def _labelled(question: Question) -> _Labelled:
    match question:
        case ChoiceQuestion():
            names = list(question.criteria)
            labels = _LETTERS[: len(names)]
            criteria = [
                f"{label}. {name}: {meaning}" if meaning else f"{label}. {name}"
                for label, (name, meaning) in zip(labels, question.criteria.items(), strict=True)
            ]
            last = "Answer with the letter of one of these."
        case BooleanQuestion():
            names, labels = ["true", "false"], [_YES, _NO]
            meanings = zip(labels, (question.criteria.true, question.criteria.false), strict=True)
            criteria = [f"{label}: {meaning}" for label, meaning in meanings if meaning]
            last = f"Answer with {_YES} or {_NO}."
        case ScoreQuestion():
            labels = names = [str(level) for level in range(len(question.criteria))]
            criteria = [
                f"{label}. {level}" for label, level in zip(labels, question.criteria, strict=True)
            ]
            last = "Answer with the number of one of these, from the lowest to the highest."
    return _Labelled(
        "\n".join(filter(None, (question.instructions, *criteria, last))), labels, names
    )


def _shared_text(body: StructuredDecisionRequest, num_questions: int) -> str:
    """What is in front of all questions.

    Raises:
        ApiError: 400: it is too long to be rendered with each.
    """
    state = body.state if isinstance(body.state, str) else msgspec.json.encode(body.state).decode()
    text = "\n\n".join(filter(None, (_ASKS, body.instructions, f"State:\n{state}")))
    size = len(text.encode(errors="replace")) + len(msgspec.json.encode(body.chat_template_kwargs))
    if size * num_questions > MAX_SHARED_BYTES:
        raise bad_request(
            f"`state`, `instructions` and `chat_template_kwargs` have {size} bytes, and each of"
            f" {num_questions} questions is rendered with them; at most {MAX_SHARED_BYTES} bytes"
            " are read at a time: send fewer questions.",
            "questions",
        )
    return text


def _media_parts(body: StructuredDecisionRequest) -> list[tuple[str, dict[str, Any]]]:
    """Each medium's place in the request, and its part of a message."""
    return [
        (f"{field}[{at}]", {"type": kind, kind: {"url": url} if isinstance(url, str) else url})
        for field, kind in _PARTS.items()
        for at, url in enumerate(getattr(body, field))
    ]


async def _label_tokens(pipeline: Pipeline, questions: Iterable[_Labelled]) -> dict[str, int]:
    """The token of each label of `questions`.

    Raises:
        ApiError: 400: the tokenizer has none for one of them.
    """
    labels = list(dict.fromkeys(label for asked in questions for label in asked.labels))
    encoded = await pipeline.rendering.prompts(labels, False, False, "questions")
    tokens = dict(zip(labels, (tuple(each.token_ids.tolist()) for each in encoded), strict=True))
    long = [label for label, ids in tokens.items() if len(ids) != 1]
    if long or len(set(tokens.values())) < len(tokens):
        raise bad_request(
            f"`questions` cannot be answered by this model: its tokenizer has no token of its own"
            f" for the label {(long or labels)[0]!r}. Ask with /v1/chat/completions and a"
            " `response_format` instead.",
            "questions",
        )
    return {label: token for label, (token,) in tokens.items()}


async def _prompts(
    pipeline: Pipeline,
    body: StructuredDecisionRequest,
    caller: Caller,
    shared: str,
    media: Sequence[dict[str, Any]],
    questions: Iterable[_Labelled],
) -> list[RenderedPrompt]:
    """A prompt for each question. Media are read once."""
    read: Sequence[PreparedMedia] = ()
    budget = MediaBudget()
    prompts: list[RenderedPrompt] = []
    for asked in questions:
        text = f"{shared}\n\n{asked.text}"
        request = ChatRequest(
            messages=[
                {
                    "role": "user",
                    "content": [*media, {"type": "text", "text": text}] if media else text,
                }
            ],
            chat_template_kwargs={
                "enable_thinking": False,
                "thinking": False,
                **body.chat_template_kwargs,
            },
            cache_salt=body.cache_salt,
        )
        check_chat(request)
        if media and not read:
            read = await read_media(pipeline.rendering, request, caller, budget=budget)
        prompts.append(await rendered_prompt(pipeline.rendering, request, caller, read, budget))
    return prompts


def _answer(question: Question, asked: _Labelled, logprobs: np.ndarray) -> tuple[Decision, float]:
    """The answer that `logprobs` of the labels are, [labels], and their probability together."""
    logprobs = np.maximum(logprobs.astype(np.float64), FLOOR)
    weights = np.exp(logprobs - logprobs.max())
    among = weights / weights.sum()
    mass = min(1.0, float(np.exp(logprobs).sum()))
    best = int(among.argmax())
    probabilities = dict(zip(asked.names, among.tolist(), strict=True))
    confidence = float(among[best]) * mass
    match question:
        case ChoiceQuestion():
            choice = asked.names[best]
            answer = ChoiceAnswer(choice=choice, probabilities=probabilities, confidence=confidence)
        case BooleanQuestion():
            answer = BooleanAnswer(
                noul=float(among[0]), probabilities=probabilities, confidence=confidence
            )
        case ScoreQuestion():
            answer = ScoreAnswer(
                score=float(among @ np.arange(len(among))),
                legend=dict(zip(asked.labels, question.criteria, strict=True)),
                probabilities=probabilities,
                confidence=confidence,
            )
    return answer, mass


@contextlib.contextmanager
def _renamed(media: Sequence[tuple[str, dict[str, Any]]]) -> Generator[None]:
    """Refusals of chats in here name the request's fields; `media` are what `_media_parts` has."""
    try:
        yield
    except ApiError as error:
        message, param = error.message, "state"
        for at, (name, part) in enumerate(media):
            place = f"messages[0].content[{at}]"
            if place in message:
                param = name.partition("[")[0]
                message = message.replace(f"{place}.{part['type']}", name).replace(place, name)
        moved = ApiError(
            error.status, message, error.param, error.type_name, error.retry_after_s, error.reason
        )
        raise renamed(moved, {"messages": param}) from error
