"""The adapters under which requests with media run, found before a model is built.

    config = with_media_adapters(config, source)
    config.lora.media["audio"]   # a folder

What `--default-mm-loras` says, or else what the model's family declares (`MediaTraits.adapter`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pagemill.config import ConfigError, EngineConfig
from pagemill.config.env import cache_folder
from pagemill.models.base import MediaTraits, ModelConfigError
from pagemill.runner.architecture import media_encoders
from pagemill.weights.adapters import CONFIG_FILE, read_adapter
from pagemill.weights.errors import WeightsError
from pagemill.weights.fetch import FetchError, resolve
from pagemill.weights.source import ModelSource

_LOGGER = logging.getLogger("pagemill.engine")
_MAX_RANK = 512  # of --max-lora-rank


@dataclass(frozen=True, slots=True)
class MediaAdapter:
    """The folder of an adapter, its largest rank, and what it takes in memory, undivided."""

    path: Path
    rank: int
    bytes: int


def with_media_adapters(config: EngineConfig, source: ModelSource) -> EngineConfig:
    """`config` with the folders of the adapters of media, fetched if need be, and with their ranks
    counted in `max_lora_rank`. Reads headers, no weights; `source` is the model as it is stored.

    Raises:
        ConfigError: an adapter of `--default-mm-loras` is for media that the model does not take,
            or one cannot be found or read.
    """
    encoders = _encoders(config, source)
    stated = config.lora.default_mm_loras
    if stated is None:
        folders = _declared(encoders, config.refused_media, source.path)
    else:
        taken = list(dict.fromkeys(kind for each in encoders for kind in each.placeholders))
        folders = {kind: _found(kind, path, taken, config) for kind, path in stated.items()}
    named = {kind: str(path) for kind, path in folders.items()}
    lora = replace(config.lora, default_mm_loras=named)
    found = replace(config, lora=lora)
    ranks = [each.rank for each in media_adapters(found).values()]
    rank = min(_MAX_RANK, max([lora.max_lora_rank, *ranks]))
    return replace(found, lora=replace(lora, max_lora_rank=rank))


def media_adapters(config: EngineConfig) -> dict[str, MediaAdapter]:
    """Those of a `config` that `with_media_adapters` has returned, by the kinds of media. Reads
    headers, no weights.

    Raises:
        ConfigError: one cannot be read.
    """
    return {kind: _opened(kind, Path(path)) for kind, path in config.lora.media.items()}


def _encoders(config: EngineConfig, source: ModelSource) -> list[MediaTraits]:
    """Of the encoders whose media the language model reads; none of a model by `transformers`."""
    model = config.model
    takes_none = model.language_model_only and not model.enable_mm_embeds
    if takes_none or model.mm_encoder_only or model.model_impl == "transformers":
        return []
    try:
        encoders = media_encoders(source)
    except ModelConfigError:  # building the model says why, or gives it to the fallback
        return []
    traits = [each.traits for each in encoders]
    return [each for each in traits if not each.is_refused(config.refused_media)]


def _declared(
    encoders: Sequence[MediaTraits], refused: frozenset[str], checkpoint: Path
) -> Mapping[str, Path]:
    """The family's, as far as the checkpoint has them."""
    folders: dict[str, Path] = {}
    for traits in encoders:
        kinds = [kind for kind in traits.placeholders if kind not in refused]
        if traits.adapter is None or not kinds:
            continue
        path = checkpoint / traits.adapter
        if (path / CONFIG_FILE).is_file():
            folders |= dict.fromkeys(kinds, path)
        else:
            _LOGGER.warning(
                "%s has no adapter in %s: requests with %s run without one; --default-mm-loras"
                " names it, if it is elsewhere",
                checkpoint,
                path,
                " or ".join(kinds),
            )
    return folders


def _found(kind: str, path: str, taken: Sequence[str], config: EngineConfig) -> Path:
    """The folder of an adapter that the operator names."""
    if kind not in taken:
        raise ConfigError(
            f"--default-mm-loras: this model takes no {kind}, only"
            f" {' and '.join(['text', *taken])}; leave {kind} out"
        )
    folder = Path(path).expanduser()
    if folder.exists():
        return folder
    try:
        return resolve(path, cache_dir=cache_folder(config.model.cache_dir))
    except FetchError as error:
        raise ConfigError(f"--default-mm-loras: the adapter for {kind}: {error}") from error


def _opened(kind: str, path: Path) -> MediaAdapter:
    try:
        adapter = read_adapter(path)
        return MediaAdapter(path, adapter.rank, adapter.bytes)
    except (WeightsError, OSError) as error:
        raise ConfigError(
            f"--default-mm-loras: the adapter for {kind} cannot be used: {error}"
        ) from error
