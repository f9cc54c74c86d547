"""The model of a configuration, opened; with random weights if there are to be none, quantized if
they are to be, converted if no kernel multiplies what its files have."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pagemill.config import ConfigError, ModelConfig
from pagemill.config.env import cache_folder
from pagemill.config.load_quantization import LoadQuantization
from pagemill.engine.executor_sizes import weights_dtype
from pagemill.quantization.pattern_syntax import PatternError
from pagemill.quantization.scaled import group_scales
from pagemill.quantization.table import CONVERTED, GROUP_SCALES, METHODS, OTHER_NAMES, stated_method
from pagemill.runner.build import BuildOptions, matrices_to_quantize, model_shapes, supports
from pagemill.weights.errors import WeightsError
from pagemill.weights.fetch import resolve
from pagemill.weights.location import TensorLocation
from pagemill.weights.random_file import random_file
from pagemill.weights.source import QUANTIZATION, ModelSource
from pagemill.weights.stored_matrix import StoredMatrix

_GGUF = "gguf"
_FILES = "quantized"
_DTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


class OpenedModel(NamedTuple):
    """`stored` is the model as its files have it; `source` has other matrices if they were
    quantized or converted here, which `at_load` says, None otherwise."""

    source: ModelSource
    stored: ModelSource
    at_load: LoadQuantization | None


def find_model(model: ModelConfig) -> Path:
    """Finds (or fetches) the configured model.

    Raises:
        FetchError: it cannot be found.
    """
    folder = cache_folder(model.cache_dir)
    return resolve(model.model, cache_dir=folder, revision=model.revision, urls=True)


def open_model(model: ModelConfig, options: BuildOptions, *, values: bool = True) -> OpenedModel:
    """Finds (or fetches) the configured model and reads headers and configuration, no weights.

    With `--load-format dummy`, its tensors are those of a file of random numbers in the cache
    folder, which is written here; a model that `options` give to `transformers` then has no
    tensors: the library makes them. With `--quantization`, matrices are those of a file there that
    is written here, too, unless the model is quantized that way already; see also `as_stored`. If
    not `values`, such files have zeros, which take no disk space.

    Raises:
        ConfigError: dummy weights need a directory with a config.json, unquantized; a model cannot
            be quantized, or is already; a pattern of modules is not supported.
        FetchError, WeightsError, ModelConfigError: the model cannot be found or read.
    """
    wanted, folder = model.quantization, cache_folder(model.cache_dir)
    if wanted is None:
        return as_stored(_open(model, folder, options, values=values), folder, values=values)
    # Imports take longer than other starts have for them.
    from pagemill.quantization.at_load.formats import FORMATS, OF_EXPERTS

    formats = (*FORMATS, *OF_EXPERTS)
    for entry, name in model.target_formats:
        if name not in FORMATS:
            raise ConfigError(
                f"--quantization-config: the format {name!r:.60} of the target {entry!r:.60} is not"
                f" known; known are {', '.join(FORMATS)}"
            )
    if wanted not in (*formats, *METHODS, *OTHER_NAMES, *CONVERTED, _GGUF):
        raise ConfigError(f"--quantization {wanted} is not known; known are {', '.join(formats)}")
    source = _open(model, folder, options, values=values)
    stated = _GGUF if source.kind == _GGUF else stated_method(source.config)
    if stated is not None and stated in (wanted, *OTHER_NAMES.get(wanted, ())):
        if model.ignored_modules or model.target_formats:
            raise ConfigError(
                f"--quantization-config: {source.path} is quantized already ({stated}), so that"
                " nothing is quantized when it is loaded; leave it out"
            )
        return as_stored(source, folder, values=values)
    if stated is not None:
        raise ConfigError(
            f"--quantization {wanted}: {source.path} is quantized already"
            f" ({stated or 'it does not say how'}); leave it out"
        )
    if wanted not in formats:
        raise ConfigError(
            f"--quantization {wanted}: {source.path} is not quantized; it can be quantized to"
            f" {', '.join(formats)}"
        )
    at_load = LoadQuantization(
        OF_EXPERTS.get(wanted, wanted),
        str(folder / _FILES),
        model.ignored_modules,
        model.target_formats,
        only_experts=wanted in OF_EXPERTS,
    )
    return _quantized_at_load(source, at_load, wanted, options, values=values)


def _quantized_at_load(
    source: ModelSource,
    at_load: LoadQuantization,
    wanted: str,
    options: BuildOptions,
    *,
    values: bool,
) -> OpenedModel:
    """`source` with matrices in the format that --quantization calls `wanted`."""
    if options.implementation == "transformers" or not supports(source):
        raise ConfigError(f"--quantization {wanted} needs a model with native support")
    try:
        return OpenedModel(quantized(source, at_load, values=values), source, at_load)
    except PatternError as error:
        said = str(error).removeprefix(f"{QUANTIZATION}: ")  # where checkpoints have patterns
        raise ConfigError(f"--quantization-config: {said}") from error


def as_stored(source: ModelSource, folder: Path, *, values: bool = True) -> OpenedModel:
    """`source` in the formats that its files have, except that matrices in 4 bits of bitsandbytes,
    HQQ's, BitNet's, packed ones that no kernel reads, and scales of MXFP8, are those of a file in
    the cache folder `folder`, which is written here; with zeros if not `values`.

    Raises:
        WeightsError: see `convert`.
    """
    stated = stated_method(source.config)
    conversions = [stated] if stated in CONVERTED else []
    if group_scales(source):
        conversions.append(GROUP_SCALES)
    for conversion in conversions:
        at_load = LoadQuantization(conversion, str(folder / _FILES))
        converted = quantized(source, at_load, values=values)
        if converted is not source:
            return OpenedModel(converted, source, at_load)
    return OpenedModel(source, source, None)


def quantized(
    source: ModelSource, at_load: LoadQuantization, *, values: bool = True
) -> ModelSource:
    """`source` with the matrices of linear layers quantized, or converted if the format of
    `at_load` is that of a checkpoint; with zeros if not `values`.

    Raises:
        WeightsError: see `quantize` and `convert`.
        PatternError: see `quantize`.
        ModelConfigError: the model is not supported.
    """
    from pagemill.quantization.at_load.converted_source import convert
    from pagemill.quantization.at_load.quantized_source import quantize

    if at_load.format in (*CONVERTED, GROUP_SCALES):
        return convert(source, at_load, sys.stderr, values=values)

    def matrices() -> Sequence[StoredMatrix]:
        return matrices_to_quantize(source, only_experts=at_load.only_experts)

    return quantize(source, at_load, matrices, sys.stderr, values=values)


def round_sent(
    stored: ModelSource,
    read: ModelSource,
    at_load: LoadQuantization,
    sent: Mapping[str, TensorLocation],
    path: Path,
) -> frozenset[str]:
    """Writes to `path` those of the tensors `sent` that are matrices which were rounded at load.

    Args:
        stored: the model as its files have it.
        read: with the rounded matrices, from `quantized(stored, at_load)`.
        at_load: how they are rounded.
        sent: new tensors of `stored`, by their names.
        path: a new safetensors file; none is written if there is nothing to round.

    Returns:
        The names of the rounded ones.

    Raises:
        WeightsError: the model was converted from a format that cannot be written in parts, or see
            `write_rounded`.
    """
    from pagemill.quantization.at_load.quantized_source import write_sent

    if at_load.format in (*CONVERTED, GROUP_SCALES):
        raise WeightsError(
            f"{stored.path} is converted when it is loaded ({at_load.format}): its weights can be"
            " replaced by those of a whole checkpoint only"
        )
    matrices = matrices_to_quantize(stored, only_experts=at_load.only_experts)
    as_stored = set(read.tensors)
    rounded = [
        replace(matrix, tensor=sent[matrix.tensor.name])
        for matrix in matrices
        if matrix.tensor.name in sent and matrix.tensor not in as_stored
    ]
    if rounded:
        write_sent(path, at_load, rounded, sys.stderr)
    return frozenset(matrix.tensor.name for matrix in rounded)


def _open(model: ModelConfig, folder: Path, options: BuildOptions, *, values: bool) -> ModelSource:
    """The model as it is, or with random weights."""
    if model.load_format != "dummy":
        return ModelSource.open(find_model(model), model.hf_overrides)
    name = "--load-format dummy"
    if model.model is None or not (Path(model.model) / "config.json").is_file():
        raise ConfigError(f"{name} needs a model that is a directory with a config.json")
    source = ModelSource.open(model.model, model.hf_overrides, tensors=False)
    if source.config.get("quantization_config") is not None:
        raise ConfigError(
            f"{name} makes no quantized weights: add --hf-overrides"
            " '{\"quantization_config\": null}'"
        )
    if options.implementation == "transformers" or (
        options.implementation == "auto" and not supports(source)
    ):
        return source
    dtype = weights_dtype(source.config)
    if dtype not in _DTYPES:
        raise WeightsError(f"{source.path}: {name} makes no weights of dtype {dtype!r:.40}")
    shapes = model_shapes(source, options)
    return source.with_file(random_file(folder / "dummy", shapes, _DTYPES[dtype], values=values))
