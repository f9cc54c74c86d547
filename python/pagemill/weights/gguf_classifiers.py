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
_LAYER, _NORM, _OUTPUT = "cls.weight", "cls.norm.weight", "cls.output.weight"


def classifier(reader: GgufReader, config: Config) -> Config:
    """What is different in the `config` of a classifier; nothing if the file has no whole head.

    Raises:
        WeightsError: the file is one of a classifier, but has no head that can be computed.
    """
    row = _ROWS.get(reader.architecture)
    is_whole = row is not None and all(reader.tensor(name) for name in row[0])
    if row is not None and is_whole:
        return row[1](reader, config)
    if reader.find("pooling_type") != RANK:
        return {}
    needed = " and ".join(row[0]) if row is not None else "known tensors of its head"
    raise reader.error(
        f"pooling_type is {RANK}, a classifier of {reader.architecture}, but the file lacks"
        f" {needed}, as files of BERT's classifiers do, whose pooler llama.cpp's converter leaves"
        " out: use the checkpoint's directory of safetensors"
    )


def _bert(reader: GgufReader, config: Config) -> Config:
    """RoBERTa's head, and DistilBERT's, whose models alone have no table of token types."""
    del config
    return {
        "architectures": ["BertForSequenceClassification"],
        "classifier_activation": "tanh" if reader.tensor("token_types.weight") else "relu",
        **_labels(reader),
    }


def _modern_bert(reader: GgufReader, config: Config) -> Config:
    """There is no key for what its head reads; llama.cpp takes the mean."""
    del config
    return {
        "architectures": ["ModernBertForSequenceClassification"],
        "classifier_pooling": "mean",
        "classifier_bias": reader.tensor("cls.bias") is not None,
        **_labels(reader),
    }


def _qwen3(reader: GgufReader, config: Config) -> Config:
    """Rerankers that answer "yes" or "no": `cls.output` has the rows of the two tokens."""
    del config
    names = _stated_labels(reader)
    if sorted(names) != ["no", "yes"]:
        stated = shown(", ".join(names))
        raise reader.error(
            f"classifier.output_labels is {stated}; known of {reader.architecture}: yes, no"
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


_ROWS: Mapping[str, tuple[tuple[str, ...], Callable[[GgufReader, Config], Config]]] = {
    "bert": ((_LAYER, _OUTPUT), _bert),
    "modern-bert": ((_LAYER, _NORM, _OUTPUT), _modern_bert),
    "qwen3": ((_OUTPUT,), _qwen3),
}
"""By architecture: the tensors of a whole head, and what it changes."""
