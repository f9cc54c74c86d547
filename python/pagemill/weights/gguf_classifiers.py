"""Classifiers in GGUF files: the layer `cls`, the norm `cls.norm` and the last layer `cls.output`.

A file with a whole head is one of a classifier, whether or not it states the pooling "rank": those
of most rerankers do not. Source: llama.cpp's `conversion/bert.py` and `conversion/qwen.py` for what
is written, and `build_pooling` of its `src/llama-graph.cpp` for what the tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pagemill.weights.classes import FROM_TOKENS, SCORE_LABELS
from pagemill.weights.gguf_reader import GgufReader
from pagemill.weights.json_file import shown

Config = dict[str, Any]

RANK = 4
"""The pooling of classifiers, of `pooling_type`."""
_INSTEAD = "use the checkpoint's directory of safetensors"
_LAYER, _NORM, _OUTPUT = "cls.weight", "cls.norm.weight", "cls.output.weight"


def classifier(reader: GgufReader) -> Config:
    """What is different in the configuration of a classifier; nothing without a whole head.

    Raises:
        WeightsError: the file is one of a classifier, but has no head that can be computed.
    """
    row = _ROWS.get(reader.architecture)
    missing = [] if row is None else [name for name in row[0] if not reader.tensor(name)]
    if row is not None and not missing:
        return row[1](reader)
    if reader.find("pooling_type") != RANK:
        return {}
    needed = " and ".join(missing) or "known tensors of its head"
    why = ""
    if reader.architecture == "bert" and missing == [_LAYER]:
        why = ", as files of BERT's do, whose pooler llama.cpp's converter leaves out"
    raise reader.error(
        f"pooling_type is {RANK}, a classifier of {reader.architecture}, but the file lacks"
        f" {needed}{why}: {_INSTEAD}"
    )


def _bert(reader: GgufReader) -> Config:
    """RoBERTa's head, and DistilBERT's, whose models alone have no table of token types."""
    return {
        "architectures": ["BertForSequenceClassification"],
        "classifier_activation": "tanh" if reader.tensor("token_types.weight") else "relu",
        **_labels(reader),
    }


def _modern_bert(reader: GgufReader) -> Config:
    """There is no key for what its head reads; llama.cpp takes the mean."""
    return {
        "architectures": ["ModernBertForSequenceClassification"],
        "classifier_pooling": "mean",
        "classifier_bias": reader.tensor("cls.bias") is not None,
        **_labels(reader),
    }


def _qwen3(reader: GgufReader) -> Config:
    """Rerankers that answer "yes" or "no": `cls.output` has the rows of the two tokens."""
    names = _stated_labels(reader)
    if sorted(names) != ["no", "yes"]:
        stated = shown(", ".join(names))
        raise reader.error(
            f"classifier.output_labels is {stated}; known of {reader.architecture}: yes, no;"
            f" otherwise {_INSTEAD}"
        )
    return {
        FROM_TOKENS: ["no", "yes"],
        "method": "from_2_way_softmax",
        SCORE_LABELS: names,
    }


def _labels(reader: GgufReader) -> Config:
    names, output = _stated_labels(reader), reader.tensor(_OUTPUT)
    count = 1 if output is None else output.shape[0]
    if not names:
        return {"num_labels": count}
    if len(names) != count:
        raise reader.error(f"classifier.output_labels are {len(names)}, but {_OUTPUT} has {count}")
    return {"id2label": {str(index): name for index, name in enumerate(names)}}


def _stated_labels(reader: GgufReader) -> list[str]:
    stated: object = reader.find("classifier.output_labels")
    if stated is None:
        return []
    listed = cast("list[object]", stated) if isinstance(stated, list) else []
    texts = [name for name in listed if isinstance(name, str)]
    if not texts or len(texts) != len(listed):
        raise reader.error("classifier.output_labels is not a list of texts")
    return texts


_ROWS: Mapping[str, tuple[tuple[str, ...], Callable[[GgufReader], Config]]] = {
    "bert": ((_LAYER, _OUTPUT), _bert),
    "modern-bert": ((_LAYER, _NORM, _OUTPUT), _modern_bert),
    "qwen3": ((_OUTPUT,), _qwen3),
}
"""By architecture: the tensors of a whole head, and what it changes."""
