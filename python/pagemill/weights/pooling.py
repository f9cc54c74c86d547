"""How a sentence-transformers directory turns token vectors into one: `modules.json`,
`<n>_Pooling/config.json` and `sentence_bert_config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill.weights.errors import WeightsError

_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True, slots=True)
class Pooling:
    """`kind` is "mean", "first" (CLS) or "last"; `max_seq_length` in tokens, where stated."""

    kind: str
    normalize: bool
    max_seq_length: int | None = None


def read_pooling(directory: Path) -> Pooling | None:
    """The pooling of `directory`; None where it is no sentence-transformers model.

    Raises:
        WeightsError: a file cannot be read, or asks for a pooling or module that does not exist
            here.
    """
    modules_path = directory / "modules.json"
    if not modules_path.exists():
        return None
    kind, normalize = "", False
    for module in _read_json(modules_path):
        name = str(module["type"]).rpartition(".")[2]
        if name == "Pooling":
            kind = _pooling_kind(directory / str(module["path"]) / "config.json")
        elif name == "Normalize":
            normalize = True
        elif name != "Transformer":
            raise WeightsError(f"{modules_path}: the module {name} is not supported")
    if not kind:
        raise WeightsError(f"{modules_path}: no Pooling module")
    limits = directory / "sentence_bert_config.json"
    longest = _read_json(limits).get("max_seq_length") if limits.exists() else None
    return Pooling(kind, normalize, longest)


def _pooling_kind(path: Path) -> str:
    config = _read_json(path)
    modes = [key for key, on in config.items() if key.startswith("pooling_mode_") and on]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise WeightsError(f"{path}: pooling by {modes or 'nothing'}; known: {', '.join(_MODES)}")
    return _MODES[modes[0]]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: {error}") from error
