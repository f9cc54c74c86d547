"""From an engine to a pipeline: what serving and batch files begin with."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagemill.config import EngineConfig, MediaConfig, flatten
from pagemill.engine.async_engine import AsyncEngine
from pagemill.engine.client import EngineClient, ModelFacts
from pagemill.engine.outputs import EngineError
from pagemill.inputs.io_processor import open_io_processor
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.task import Task
from pagemill.observe.metrics import MetricsOptions, RequestMetrics
from pagemill.server.errors import from_engine
from pagemill.server.fingerprint import system_fingerprint
from pagemill.server.media import MediaReader, NoMedia, media_as_embeds, open_media
from pagemill.server.media_work import KeptMedia
from pagemill.server.model_info import ModelInfo
from pagemill.server.pipeline import Pipeline
from pagemill.server.pooling.plugin import DataPlugin
from pagemill.server.processes.engine_source import EngineSource
from pagemill.server.rendering import (
    Renderer,
    check_options,
    open_late_interaction,
    open_renderer,
    vocabulary_opener,
)
from pagemill.server.speech.speech import generating_tasks, open_speech
from pagemill.weights.source import ModelSource

if TYPE_CHECKING:
    from pagemill.engine.media import MediaFrontEnd

_NO_ENCODER = "this server has no encoder of media (--language-model-only): send embeddings"


async def open_model(
    source: EngineSource,
    config: EngineConfig,
    observed: MetricsOptions | None = None,
    media: MediaConfig | None = None,
) -> tuple[EngineClient, Pipeline]:
    """Starts a client of the engine and opens the model's renderer.

    The caller ends `pipeline.engine` and then `source`; after a failure only `source`.

    Raises:
        What `check_options`, `EngineSource.open` and `open_renderer` raise.
    """
    check_options(config.model)
    client = await source.open()
    engine = AsyncEngine(client)
    await engine.start()
    files = await source.model_source()
    renderer = await asyncio.to_thread(open_renderer, files, config.model)
    engine.eos_token_ids = tuple(
        dict.fromkeys((*client.model.eos_token_ids, *renderer.eos_token_ids))
    )
    model = _model_info(client.model, config, files)
    work = None
    if observed is not None and observed.estimate_work:
        from pagemill.engine.model_work import model_work

        work = await asyncio.to_thread(model_work, config)
    metrics = RequestMetrics(model.name, model.max_model_len, observed, flatten(config.cache), work)
    if client.model.max_adapters:
        metrics.serve_adapters(client.model.max_adapters)
    source.grammars.open_vocabulary = vocabulary_opener(
        renderer, model.vocab_size, engine.eos_token_ids
    )
    limits = media or MediaConfig()
    kept = KeptMedia.of(limits, "" if observed is None else observed.shared_folder, metrics)
    most = client.model.max_item_tokens
    front_ends: tuple[MediaFrontEnd, ...] = ()
    if most:
        front_ends = await asyncio.to_thread(_front_ends, files, limits, config)
        given = config.model.enable_mm_embeds
        opened = await asyncio.to_thread(
            _media, files, most, limits, kept, renderer, front_ends, given=given
        )
    else:
        opened = await asyncio.to_thread(no_media, files, config)
    speech = None if config.encoders_apart else open_speech(files, renderer, opened)
    model = replace(model, generates=generating_tasks(files, speech))
    pipeline = Pipeline(engine, renderer, model, metrics, source.grammars, opened)
    pipeline.speech = speech
    if model.pooled is not None and model.pooled.task is Task.MEDIA_EMBED:
        from pagemill.server.loaded_encoders import LoadedEncoders

        pipeline.media_encoding = LoadedEncoders(front_ends, _control_text(renderer))
    if model.pooled is not None and model.pooled.task is Task.TOKEN_EMBED:
        pipeline.late_interaction = await asyncio.to_thread(open_late_interaction, files, renderer)
    processor = open_io_processor(config.model.io_processor_plugin, model.pooled)
    pipeline.plugin = None if processor is None else DataPlugin(processor)
    return client, pipeline


def _front_ends(
    files: ModelSource, limits: MediaConfig, config: EngineConfig
) -> tuple[MediaFrontEnd, ...]:
    from pagemill.engine.media import MediaFrontEnd

    return MediaFrontEnd.of(
        files,
        limits.refused_kinds,
        takes_rows=config.model.enable_mm_embeds or config.encoders_apart,
        is_loaded=not (config.model.language_model_only or config.encoders_apart),
    )


def _control_text(renderer: Renderer) -> Callable[[str], list[int]]:
    """What tokenizes texts beside media."""
    return functools.partial(renderer.encode, add_special_tokens=False, parse_special=True)


def _media(
    files: ModelSource,
    max_tokens: int,
    config: MediaConfig,
    kept: KeptMedia,
    renderer: Renderer,
    front_ends: Sequence[MediaFrontEnd],
    *,
    given: bool,
) -> MediaReader | NoMedia:
    """`given`: requests may have embeddings of media."""
    from pagemill.engine.media import media_kinds, place_media

    encode = _control_text(renderer)

    def place(prompt: RenderedPrompt, media: Sequence[PreparedMedia]) -> RenderedPrompt:
        try:
            return place_media(prompt, media, front_ends, encode)
        except EngineError as error:
            raise from_engine(EngineError(error.code, error.message, "messages")) from error

    first, kinds = front_ends[0], media_kinds(files)
    width = first.traits.width if given else 0
    if given and not first.is_loaded and not config.encoder_servers:
        return media_as_embeds(config, dict.fromkeys(kinds, _NO_ENCODER), width, place)
    return open_media(config, kinds, Path(files.path), max_tokens, place, kept, embeds_width=width)


def no_media(files: ModelSource, config: EngineConfig) -> NoMedia:
    """Names the option that left out the encoder of a model with media."""
    option = "--language-model-only" if config.model.language_model_only else ""
    if not option and config.refused_media:
        option = "--limit-mm-per-prompt"
    if not option:
        return NoMedia()
    from pagemill.engine.media import media_kinds

    if not media_kinds(files):
        return NoMedia()
    return NoMedia(f"this server has no encoder of media ({option})")


def _model_info(facts: ModelFacts, config: EngineConfig, files: ModelSource) -> ModelInfo:
    return ModelInfo(
        names=facts.names,
        max_model_len=facts.max_model_len,
        vocab_size=facts.vocab_size,
        pooled=facts.pooled,
        created=int(time.time()),
        defaults=facts.defaults,
        max_tokens_cap=facts.max_tokens_cap,
        max_choices=facts.max_choices,
        embeds_width=facts.embeds_width,
        encoder_text=facts.encoder_text,
        max_logprobs=config.model.max_logprobs,
        adapters=facts.max_adapters > 0,
        alignment=facts.alignment,
        root=str(config.model.model or facts.names[0]),
        fingerprint=system_fingerprint(config, str(files.path)),
    )
