"""What a sentence-transformers directory makes of token vectors: `modules.json`, the
`config.json` of its modules, and `sentence_bert_config.json`; or metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import read_json, read_object, shown

DENSE = "dense_modules."
"""In front of the number of a Dense module and its tensors."""
_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


_GGUF_KINDS = {1: "mean", 2: "first", 3: "last"}
_NOT_POOLED = (0, 4)  # none, and that of classifiers


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer, `<module>.weight` [size, ...] and, if it has a `bias`, `<module>.bias`, with
    the `activation` that torch's module of this name computes. `folder` has its files."""

    module: str
    size: int
    bias: bool
    activation: str = "Identity"
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Pooling:
    """`kind` is "mean", "first" (CLS), "last", "splade", or "all" if vectors of tokens stay, to
    which the `dense` layers belong then; otherwise they follow. `max_seq_length` in tokens, if
    stated."""

    kind: str
    normalize: bool
    max_seq_length: int | None = None
    dense: tuple[Dense, ...] = ()


def read_pooling(directory: Path) -> Pooling | None:
    """The pooling of `directory`; None if it is no sentence-transformers model. Without a Pooling
    module, vectors of tokens stay (ColBERT, as PyLate saves it).

    Raises:
        WeightsError: a file cannot be read, or requests an unsupported pooling or module.
    """
    modules_path = directory / "modules.json"
    if not modules_path.exists():
        return None
    kind, normalize = "", False
    dense: list[Dense] = []
    for module_type, folder in _modules(modules_path):
        name = module_type.rpartition(".")[2]
        path = directory / folder / "config.json"
        if name in ("Pooling", "SpladePooling") and dense:
            raise WeightsError(f"{modules_path}: a Dense module in front of the pooling")
        if name == "Pooling":
            kind = _pooling_kind(path)
        elif name == "SpladePooling":
            kind = _splade(path)
        elif name == "Dense" and folder:
            dense.append(_dense(path, folder, f"{DENSE}{len(dense)}.linear"))
        elif name == "Normalize":
            normalize = True
        elif name not in ("Transformer", "MLMTransformer"):
            raise WeightsError(f"{modules_path}: the module {shown(name)} is not supported")
    if not kind and not dense:
        raise WeightsError(f"{modules_path}: neither a Pooling nor a Dense module")
    longest = _longest(directory / "sentence_bert_config.json")
    return Pooling(kind or "all", normalize, longest, tuple(dense))


def gguf_pooling(path: Path, metadata: Mapping[str, Any]) -> Pooling | None:
    """The pooling that the metadata of the GGUF file at `path` states; None if there is none.
    Programs that read such files divide vectors by their lengths.

    Raises:
        WeightsError: the file states another pooling.
    """
    kind: Any = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    if kind in _NOT_POOLED:
        return None
    if not isinstance(kind, int) or kind not in _GGUF_KINDS:
        known = ", ".join(f"{number} ({name})" for number, name in _GGUF_KINDS.items())
        raise WeightsError(
            f"{path}: pooling_type {shown(kind)} is not supported; known: 0 (none), {known},"
            " 4 (a classifier)"
        )
    return Pooling(_GGUF_KINDS[kind], normalize=True)


def matryoshka_sizes(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The sizes to which embeddings of a model with this `config.json` may be shortened: those of
    `matryoshka_dimensions`, or with `is_matryoshka` any, which is (); None: they may not.

    Raises:
        WeightsError: a key has another type.
    """
    sizes: Any = config.get("matryoshka_dimensions")
    is_any: Any = config.get("is_matryoshka", False)
    if not isinstance(is_any, bool):
        raise WeightsError(f"config.json: is_matryoshka is {shown(is_any)}")
    if sizes is None:
        return () if is_any else None
    found = cast("list[Any]", sizes if isinstance(sizes, list) else [])
    if not found or not all(type(size) is int and size > 0 for size in found):
        raise WeightsError(f"config.json: matryoshka_dimensions is {shown(cast(Any, sizes))}")
    return tuple(sorted(set(found)))


def _modules(path: Path) -> list[tuple[str, str]]:
    """Type and folder of each module."""
    modules = read_json(path)
    if not isinstance(modules, list):
        raise WeightsError(f"{path}: not a list of modules")
    found: list[tuple[str, str]] = []
    for module in cast("list[Any]", modules):
        entry = cast("dict[str, Any]", module) if isinstance(module, dict) else {}
        kind, folder = entry.get("type"), entry.get("path", "")
        # A module's folder must be inside the model's.
        if not isinstance(kind, str) or not isinstance(folder, str) or ".." in folder:
            raise WeightsError(f"{path}: a module needs a type and the name of a folder")
        found.append((kind, folder.lstrip("/")))
    return found


def _longest(path: Path) -> int | None:
    if not path.exists():
        return None
    longest = read_object(path).get("max_seq_length")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise WeightsError(f"{path}: max_seq_length is {shown(longest)}")
    return longest


def _pooling_kind(path: Path) -> str:
    config = read_object(path)
    modes = [key for key, on in config.items() if key.startswith("pooling_mode_") and on]
    if len(modes) != 1 or modes[0] not in _MODES:
        by = ", ".join(shown(mode) for mode in modes[:3]) or "nothing"
        raise WeightsError(f"{path}: pooling by {by}; known: {', '.join(_MODES)}")
    return _MODES[modes[0]]


def _splade(path: Path) -> str:
    config = read_object(path)
    for key, known in (("pooling_strategy", "max"), ("activation_function", "relu")):
        if config.get(key, known) != known:
            raise WeightsError(f"{path}: {key} is {shown(config[key])}; known: {known}")
    return "splade"


def _dense(path: Path, folder: str, module: str) -> Dense:
    config = read_object(path)
    size, bias = config.get("out_features"), config.get("bias", True)
    activation = config.get("activation_function", "Tanh")
    if type(size) is not int or size < 1 or not isinstance(bias, bool):
        raise WeightsError(f"{path}: out_features is {shown(size)}, bias {shown(bias)}")
    if not isinstance(activation, str) or config.get("use_residual"):
        raise WeightsError(f"{path}: activation_function {shown(activation)} or use_residual")
    return Dense(module, size, bias, activation.rpartition(".")[2], folder)
