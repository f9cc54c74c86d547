"""How a model turns token vectors into one: `modules.json`, `<n>_Pooling/config.json` and
`sentence_bert_config.json` of a sentence-transformers directory, or metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import read_json, read_object, shown

_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


_GGUF_KINDS = {1: "mean", 2: "first", 3: "last"}


@dataclass(frozen=True, slots=True)
class Pooling:
    """`kind` is "mean", "first" (CLS) or "last"; `max_seq_length` in tokens, if stated."""

    kind: str
    normalize: bool
    max_seq_length: int | None = None


def read_pooling(directory: Path) -> Pooling | None:
    """The pooling of `directory`; None if it is no sentence-transformers model.

    Raises:
        WeightsError: a file cannot be read, or requests an unsupported pooling or module.
    """
    modules_path = directory / "modules.json"
    if not modules_path.exists():
        return None
    kind, normalize = "", False
    for module_type, folder in _modules(modules_path):
        name = module_type.rpartition(".")[2]
        if name == "Pooling":
            kind = _pooling_kind(directory / folder / "config.json")
        elif name == "Normalize":
            normalize = True
        elif name != "Transformer":
            raise WeightsError(f"{modules_path}: the module {shown(name)} is not supported")
    if not kind:
        raise WeightsError(f"{modules_path}: no Pooling module")
    return Pooling(kind, normalize, _longest(directory / "sentence_bert_config.json"))


def gguf_pooling(path: Path, metadata: Mapping[str, Any]) -> Pooling | None:
    """The pooling that the metadata of the GGUF file at `path` states; None if there is none.
    Programs that read such files divide vectors by their lengths.

    Raises:
        WeightsError: the file states another pooling.
    """
    kind: Any = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    if kind == 0:
        return None
    if not isinstance(kind, int) or kind not in _GGUF_KINDS:
        known = ", ".join(f"{number} ({name})" for number, name in _GGUF_KINDS.items())
        raise WeightsError(
            f"{path}: pooling_type {shown(kind)} is not supported; known: 0 (none), {known}."
            " Classifiers need a directory of safetensors"
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
