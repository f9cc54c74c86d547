"""The classes of a classifier, and what turns its logits into scores, by its `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown

_Activation = Literal["identity", "relu", "sigmoid", "softmax"]
_DEFAULT_LABELS = 2  # of a configuration that states none, as in `transformers`
_MAX_LABELS = 2**20
FROM_TOKENS = "classifier_from_token"
"""The key of tokens whose logits are those of classes."""
SCORE_LABELS = "score_labels"
"""The key of tokens whose rows are those of a GGUF file's matrix `score`."""
_MAX_TOKENS = 64
_MAX_LOGIT = 1e6
# By the kind of problem that the model was trained for.
_BY_PROBLEM: Mapping[str, _Activation] = {
    "regression": "identity",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
# By the torch module that a cross-encoder of sentence-transformers names.
_BY_MODULE: Mapping[str, _Activation] = {
    "Identity": "identity",
    "Sigmoid": "sigmoid",
    "Softmax": "softmax",
}


@dataclass(frozen=True, slots=True)
class Classes:
    """`labels` in the order of the classifier's outputs. If there are `tokens`, outputs are their
    logits, or if they are `opposed` the second's less the first's. Logits are calibrated by
    subtracting `mean` and dividing by `sigma`, before the activation."""

    labels: tuple[str, ...]
    activation: _Activation
    tokens: tuple[str, ...] = ()
    opposed: bool = False
    mean: float = 0.0
    sigma: float = 1.0


def read_classes(config: Mapping[str, Any], count: int = _DEFAULT_LABELS) -> Classes:
    """The classes by `classifier_from_token`, `id2label` or `num_labels`. The activation is that of
    `problem_type`, or the one that sentence-transformers states, or else softmax, and sigmoid for a
    single class. A configuration that says nothing of classes has `count`; one of them is a reward,
    whose logit is the score. `logit_mean` and `logit_sigma` calibrate logits.

    Raises:
        WeightsError: a key has another type, or names an unknown activation.
    """
    mean, sigma = _number(config, "logit_mean", 0.0), _number(config, "logit_sigma", 1.0)
    if sigma <= 0:
        raise WeightsError(f"config.json: logit_sigma is {sigma:g}; it must be greater than 0")
    return replace(_uncalibrated(config, count), mean=mean, sigma=sigma)


def _uncalibrated(config: Mapping[str, Any], count: int) -> Classes:
    if config.get(FROM_TOKENS) is not None:
        return _of_tokens(config)
    labels = _labels(config, count)
    default = "softmax" if len(labels) > 1 else "identity" if count == 1 else "sigmoid"
    return Classes(labels, _activation(config) or default)


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key)
    value = default if value is None else value
    if type(value) not in (int, float) or not abs(value) < _MAX_LOGIT:  # false for NaN, too
        raise WeightsError(f"config.json: {key} is {shown(value)}, not a number of logits")
    return float(value)


def _of_tokens(config: Mapping[str, Any]) -> Classes:
    """Tokens of the vocabulary as classes, or two as one class, as a reranker is published that
    answers "yes" or "no"."""
    listed: Any = config[FROM_TOKENS]
    tokens = tuple(cast("list[Any]", listed)) if isinstance(listed, list) else ()
    if not all(isinstance(token, str) for token in tokens) or not 1 <= len(tokens) <= _MAX_TOKENS:
        stated = shown(config[FROM_TOKENS])
        raise WeightsError(
            f"config.json: {FROM_TOKENS} is {stated}; a list of 1 to {_MAX_TOKENS} tokens"
        )
    is_opposed = config.get("is_original_qwen3_reranker") is True
    method = config.get("method") or ("from_2_way_softmax" if is_opposed else "no_post_processing")
    if method not in ("from_2_way_softmax", "no_post_processing"):
        raise WeightsError(
            f"config.json: method is {shown(method)}; known: from_2_way_softmax, no_post_processing"
        )
    opposed = method == "from_2_way_softmax"
    if opposed and len(tokens) != 2:
        raise WeightsError(f"config.json: from_2_way_softmax needs 2 tokens, not {len(tokens)}")
    labels = tokens[1:] if opposed else tokens
    activation = _activation(config) or ("softmax" if len(labels) > 1 else "sigmoid")
    return Classes(labels, activation, tokens, opposed)


def _labels(config: Mapping[str, Any], default: int) -> tuple[str, ...]:
    names = config.get("id2label")
    if names is None:
        count = config.get("num_labels", default)
        if type(count) is not int or not 1 <= count <= _MAX_LABELS:
            raise WeightsError(f"config.json: num_labels is {shown(count)}")
        return tuple(f"LABEL_{i}" for i in range(count))
    by_id = cast("dict[str, Any]", names) if isinstance(names, dict) else {}
    labels = tuple(by_id.get(str(i)) for i in range(len(by_id)))
    if not labels or not all(isinstance(label, str) for label in labels):
        raise WeightsError(
            "config.json: id2label must map the numbers of classes, from 0 on, to texts"
        )
    return cast("tuple[str, ...]", labels)


def _activation(config: Mapping[str, Any]) -> _Activation | None:
    problem = config.get("problem_type")
    if problem:
        return _known(_BY_PROBLEM, problem, "problem_type")
    stated = config.get("sentence_transformers")
    cross_encoder = cast("dict[str, Any]", stated) if isinstance(stated, dict) else {}
    key = "sbert_ce_default_activation_function"
    name = cross_encoder.get("activation_fn") or config.get(key)
    if not name:
        return None
    last = name.rpartition(".")[2] if isinstance(name, str) else name
    return _known(_BY_MODULE, last, "the cross-encoder's activation function")


def _known(table: Mapping[str, _Activation], name: object, what: str) -> _Activation:
    if not isinstance(name, str) or name not in table:
        raise WeightsError(f"config.json: {what} is {shown(name)}; known: {', '.join(table)}")
    return table[name]
