"""The model of a configuration, opened; with random weights if there are to be none."""

from __future__ import annotations

from pathlib import Path

from pagemill.config import ConfigError, ModelConfig
from pagemill.config.env import cache_folder
from pagemill.engine.executor_sizes import weights_dtype
from pagemill.runner.build import BuildOptions, model_shapes, supports
from pagemill.weights.errors import WeightsError
from pagemill.weights.fetch import resolve
from pagemill.weights.random_file import random_file
from pagemill.weights.source import ModelSource

_DTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def open_model(model: ModelConfig, options: BuildOptions, *, values: bool = True) -> ModelSource:
    """Finds (or fetches) the configured model and reads headers and configuration, no weights.

    With `--load-format dummy`, its tensors are those of a file of random numbers in the cache
    folder, which is written here; if not `values`, of one with zeros that takes no disk space. A
    model that `options` give to `transformers` then has no tensors: the library makes them.

    Raises:
        ConfigError: dummy weights need a directory with a config.json, unquantized.
        FetchError, WeightsError, ModelConfigError: the model cannot be found or read.
    """
    folder = cache_folder(model.cache_dir)
    if model.load_format != "dummy":
        path = resolve(model.model, cache_dir=folder, revision=model.revision)
        return ModelSource.open(path, model.hf_overrides)
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
