"""A transcription as a generation: one prompt a clip, all submitted together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from pagemill.render.errors import RenderError
from pagemill.render.transcription.alignment import Heard
from pagemill.render.transcription.base import (
    Around,
    LanguageProbe,
    SpeechTask,
    Transcription,
)
from pagemill.server.access.caller import Caller
from pagemill.server.choice_search import Beams
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.generation import Generation
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.output_limits import NO_LIMITS, OutputLimits
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.transcription import (
    MAX_PROMPT_CHARS,
    SpeechRequest,
    TranslationRequest,
    check_speech,
    probe_sampling,
    speech_sampling,
)
from pagemill.server.respond import whole_choices
from pagemill.server.speech.speech import ClipTimes, Sound, Speech
from pagemill.server.time_limit import in_time


@dataclass(frozen=True, slots=True)
class StartedSpeech:
    """What was submitted: all clips, or with `condition_on_previous_text` the first one. `language`
    of the audio is None if it is not known; `no_speech` is the
    probability that nothing is said in each of `clips`, None: not known."""

    generation: Generation
    clips: Sequence[ClipTimes]
    language: str | None
    no_speech: Sequence[float | None]
    submit: Callable[[Sequence[int], float | None, str], Awaitable[Generation]]
    """Submits the clips with these numbers, at a temperature (None: the request's, and its beams;
    others write the same each time), behind what was said so far."""
    hear: Callable[[int, Sequence[int]], Awaitable[Heard]]
    """What alignment heads compare of the clip with this number and the tokens that were written of
    it. Only of models that have some."""
    release: Callable[[], None]
    """The audio is not used any more. The caller calls it at the end."""
    speakers: bool
    """Whether what is written are turns of speakers, with marks."""

    @property
    def duration_s(self) -> float:
        """Of all audio."""
        return sum(clip.duration_s for clip in self.clips)


async def start_speech(
    pipeline: Pipeline, speech: Speech, request: SpeechRequest, caller: Caller
) -> StartedSpeech:
    """Reads the audio, finds the language if the request does not say it, and submits.

    Raises:
        ApiError: the request cannot be served.
    """
    check_speech(request)
    _check_abilities(request, pipeline, speech.family)
    task = _checked(speech, request)
    options = GenerationOptions(
        max_tokens=request.max_completion_tokens,
        default_max_tokens=None,
        max_tokens_param="max_completion_tokens",
        deadline=pipeline.deadline(None, caller),
        caller=caller,
        param="file",
    )
    async with in_time(options.deadline):
        sounds = await speech.sounds(
            request.file,
            lambda number: pipeline.check_choices(number, request.n, "file"),
            request.n,
            tenant=caller.tenant,
        )
    try:
        probed = _to_probe(speech.family.probe, request, task, sounds.clips)
        no_speech = list[float | None]()
        if probed is not None:
            language, no_speech = await _probed(pipeline, *probed, options)
            task = task._replace(language=task.language or language)
        # It may run a chat template on the request's text.
        around = await asyncio.to_thread(_around, speech, task)
        to_hear = options
        options = replace(options, transcript=speech.family.rules(task), search=_search(request))
        sampling = speech_sampling(request)
        begun = sounds.clips[:1] if request.condition_on_previous_text else sounds.clips
        prompts = [sound.within(around) for sound in begun]
        generation = await pipeline.generate(prompts, sampling, options)
    except BaseException:
        sounds.release()
        raise
    no_speech += [None] * (len(sounds.clips) - len(no_speech))
    times = [sound.times for sound in sounds.clips]

    async def submit(clips: Sequence[int], temperature: float | None, said: str) -> Generation:
        behind = around
        if said:
            earlier = f"{task.prompt} {said.strip()}".strip()[-MAX_PROMPT_CHARS:]
            behind = await asyncio.to_thread(_around, speech, task._replace(prompt=earlier))
        changed = sampling
        if temperature is not None:
            seed = 0 if sampling.seed is None else sampling.seed
            changed = structs.replace(sampling, temperature=temperature, seed=seed, n=1)
        searched = options if temperature is None else replace(options, search=None)
        prompts = [sounds.clips[at].within(behind) for at in clips]
        return await pipeline.generate(prompts, changed, searched)

    async def hear(clip: int, token_ids: Sequence[int]) -> Heard:
        assert pipeline.model.alignment is not None
        sound = sounds.clips[clip]
        told = token_ids[:-1] or token_ids  # nothing follows the last token
        prompt = sound.within(Around(around.before, [*around.after, *told]))
        (rows,), _ = await pipeline.pool([prompt], to_hear)
        by_head = rows.reshape(len(rows), *pipeline.model.alignment)
        first = len(around.before)
        return Heard(by_head[-len(told) :], by_head[first : first + len(sound.tokens)])

    return StartedSpeech(
        generation,
        times,
        task.language,
        no_speech,
        submit,
        hear,
        sounds.release,
        speech.family.speakers,
    )


def _check_abilities(request: SpeechRequest, pipeline: Pipeline, family: Transcription) -> None:
    """Whether the model has what the format needs.

    Raises:
        ApiError: 400: it does not.
    """
    if request.wants_words and pipeline.model.alignment is None:
        raise bad_request(
            "`timestamp_granularities[]`: this model does not tell when words are said. That needs"
            " a Whisper whose generation_config.json has `alignment_heads`, which is not divided"
            " among ranks (--tensor-parallel-size 1); send `segment`.",
            "timestamp_granularities",
        )
    if request.response_format == "diarized_json" and not family.speakers:
        raise bad_request(
            "`response_format=diarized_json`: this model does not tell speakers apart, as"
            " MOSS-Transcribe-Diarize does; send `json`.",
            "response_format",
        )
    if request.response_format == "verbose_json" and family.speakers:
        raise bad_request(
            "`response_format=verbose_json`: this model writes turns of speakers; send"
            " `diarized_json`.",
            "response_format",
        )


def _search(request: SpeechRequest) -> Beams | None:
    """How each clip is written; None: token by token."""
    if not request.use_beam_search:
        return None
    return Beams(request.length_penalty, ignores_eos=False, by_rules=True)


def _to_probe(
    probe: LanguageProbe | None,
    request: SpeechRequest,
    task: SpeechTask,
    sounds: Sequence[Sound],
) -> tuple[LanguageProbe, Sequence[Sound]] | None:
    """The probe and the clips that it is for; None if nothing of it is needed."""
    if probe is None:
        return None
    if request.response_format == "verbose_json" and probe.no_speech is not None:
        return probe, sounds
    if task.language is None and probe.languages:
        return probe, sounds[:1]
    return None


def check_task(speech: Speech, task: SpeechTask) -> SpeechTask:
    """The task with what the model makes of it.

    Raises:
        ApiError: 400 about a field.
    """
    language = None if task.language is None else task.language.lower()
    try:
        return speech.family.checked(task._replace(language=language))
    except RenderError as error:
        raise _refusal(error) from error


def _checked(speech: Speech, request: SpeechRequest) -> SpeechTask:
    to_language = request.to_language if isinstance(request, TranslationRequest) else None
    prompt = f"{request.hotwords} {request.prompt}".strip()
    return check_task(speech, SpeechTask(request.language, to_language, prompt, request.is_timed))


def _around(speech: Speech, task: SpeechTask) -> Around:
    try:
        return speech.family.around(task)
    except RenderError as error:
        raise _refusal(error) from error


def _refusal(error: RenderError) -> ApiError:
    return bad_request(error.message[:1].upper() + error.message[1:], error.param)


async def _probed(
    pipeline: Pipeline,
    probe: LanguageProbe,
    sounds: Sequence[Sound],
    options: GenerationOptions,
) -> tuple[str | None, list[float | None]]:
    """The language of the first of `sounds`, and how likely nothing is said in each."""
    languages = tuple(sorted(probe.languages))
    limits = OutputLimits(allowed_token_ids=languages) if languages else NO_LIMITS
    generation = await pipeline.generate(
        [sound.within(probe.around) for sound in sounds],
        probe_sampling(probe.no_speech),
        replace(options, max_tokens=1, limits=limits),
    )
    choices = await whole_choices(generation)
    first = choices[0].token_ids
    language = probe.languages.get(first[0]) if first else None
    return language, [_probability(choice.logprobs, probe.no_speech) for choice in choices]


def _probability(entries: Sequence[Any], token: int | None) -> float | None:
    """That of `token` in place of the first one."""
    found = dict(entries[0].top).get(token) if entries else None
    return None if found is None else math.exp(found)
