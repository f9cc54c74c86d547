"""The tail of a program: what is computed of a model's last vectors.

A model generates, or it pools: the vectors of a prompt become one by a pooling, or all stay; linear
layers or the head of a classifier may follow. The files say which, and an operator may choose
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagemill import ops
from pagemill.inputs.task import Pooled, Task
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.pooler import KINDS, pool
from pagemill.models.base import (
    Classifier,
    MaskedModel,
    Model,
    ModelConfigError,
    TokenScorer,
)
from pagemill.models.table import find
from pagemill.ops.program import ACT
from pagemill.ops.trace import Tensor
from pagemill.weights.classes import FROM_TOKENS, SCORE_LABELS, Classes, read_classes
from pagemill.weights.errors import WeightsError
from pagemill.weights.heads import COLBERT, HEADS, SPARSE
from pagemill.weights.json_file import shown
from pagemill.weights.pooling import Dense, matryoshka_sizes
from pagemill.weights.source import ModelSource
from pagemill.weights.vocabulary import vocabulary

_ALL, _SPLADE = "all", "splade"
_ACTIVATIONS: Mapping[str, ops.ActivationKind] = {
    "GELU": ops.ActivationKind.GELU,
    "Identity": ops.ActivationKind.IDENTITY,
    "ReLU": ops.ActivationKind.RELU,
    "SiLU": ops.ActivationKind.SILU,
    "Sigmoid": ops.ActivationKind.SIGMOID,
    "Tanh": ops.ActivationKind.TANH,
}
# The last matrices of reward models, Qwen2's and InternLM2's.
_REWARDS = ("score.2.weight", "v_head.weight")
_STEP_TAG = "step_tag_id"
OTHER_TAILS: Mapping[str, str] = {
    rf"({'|'.join(head.rstrip('.') for head in HEADS)})\..*": "layers of another task"
}
"""What the tail of a task may leave unread, as `Model.ignored`."""


@dataclass(frozen=True, slots=True)
class Tail:
    """`pooling` is a kind of `layers.pooler`, None if the model generates; `dense` layers follow.
    Vectors have the length 1 if `normalize`; `classes` are those of a classifier, whose head is the
    model's unless there are `dense` layers. Rows of the first `skipped` tokens are left out."""

    task: Task
    pooling: str | None = None
    normalize: bool = False
    classes: Classes | None = None
    max_seq_length: int | None = None
    dense: tuple[Dense, ...] = ()
    skipped: int = 0
    step_tag: int | None = None
    """The only token whose rows are wanted."""
    sums: tuple[Mapping[int, float], ...] = ()
    """Of logits of tokens: those of classes, instead of a head."""
    score_rows: int = 0
    """If the files have rows of tokens as a matrix `score`: how many. `sums` are those of them."""

    def pooled(self, model: Model, source: ModelSource) -> Pooled | None:
        """What front ends need to know of its rows; None if the model generates.

        Raises:
            WeightsError: the configuration's sizes of embeddings are none.
        """
        if self.pooling is None:
            return None
        if self.classes is not None:
            return Pooled(
                task=self.task,
                width=len(self.classes.labels),
                pooling=self.pooling,
                labels=self.classes.labels,
                activation=self.classes.activation,
                logit_mean=self.classes.mean,
                logit_sigma=self.classes.sigma,
                step_tag=self.step_tag,
            )
        sparse = self.pooling == _SPLADE
        width = model.traits.vocab_size if sparse else model.traits.hidden_size
        return Pooled(
            task=self.task,
            width=self.dense[-1].size if self.dense else width,
            pooling=self.pooling,
            normalizes=self.normalize,
            sizes=None if sparse else matryoshka_sizes(source.config),
            skipped=self.skipped,
        )


def choose_tail(
    source: ModelSource,
    model: Model,
    *,
    task: Task | None = None,
    pooling: str | None = None,
    normalize: bool = True,
) -> Tail:
    """The tail by `task`, None = what the files are for; and `pooling` of its texts, None = that of
    the files, or else the last token of a decoder and the mean of an encoder. `normalize` holds if
    no file of sentence-transformers says otherwise.

    Raises:
        ModelConfigError: the model cannot do this.
        WeightsError: the classes of the configuration are wrong.
    """
    task = _made_for(source, pooling) if task is None else task
    name, traits = source.architecture, model.traits
    if task is Task.GENERATE:
        if not traits.generates:
            raise ModelConfigError(f"{name} does not generate text; use --task embed")
        return Tail(task)
    if pooling is not None and not _suits(pooling, task):
        what = "takes all tokens" if task.by_token else f"has no pooling {pooling!r:.40}"
        what = f"--task {task} {what}"
        raise ModelConfigError(f"{what}; leave out --pooling-type, or choose one of its values")
    if task.classifies:
        return _classifier(source, model, task, pooling)
    limit = None if source.pooling is None else source.pooling.max_seq_length
    if task.by_token:
        layers = _token_layers(source)
        # BGE-M3 has no vector for the first token (FlagEmbedding).
        skipped = int(any(layer.module == COLBERT for layer in layers))
        return Tail(task, _ALL, normalize, None, limit, layers, skipped)
    stated = source.pooling
    if stated is not None and _pools(source) and pooling in (None, stated.kind):
        normalize = stated.normalize if pooling is None else normalize
        return Tail(task, stated.kind, normalize, None, limit, stated.dense)
    if pooling == _SPLADE:
        return Tail(task, pooling, False, None, limit)
    default = "last" if traits.causal or traits.pools_last else "mean"
    return Tail(task, pooling or default, normalize, None, limit)


def _made_for(source: ModelSource, pooling: str | None) -> Task:
    """What the files are for, or `pooling`, if an operator chose one."""
    if source.config.get(FROM_TOKENS) is not None:
        steps = source.config.get(_STEP_TAG) is not None
        return Task.TOKEN_CLASSIFY if steps else Task.CLASSIFY
    made_for = find(source.architecture).task
    if made_for is Task.GENERATE and (source.pooling is not None or pooling is not None):
        made_for = Task.EMBED
    by_token = pooling is None and not _pools(source) and _token_layers(source)
    return Task.TOKEN_EMBED if made_for is Task.EMBED and by_token else made_for


def _suits(pooling: str, task: Task) -> bool:
    """Whether texts of the task can be pooled so."""
    if task.by_token or pooling not in KINDS or pooling == _ALL:
        return False
    return pooling != _SPLADE or task is Task.EMBED


def _pools(source: ModelSource) -> bool:
    """Whether the files make one vector of a text."""
    return source.pooling is not None and source.pooling.kind != _ALL


def _token_layers(source: ModelSource) -> tuple[Dense, ...]:
    """The layers behind vectors of tokens: those of PyLate, ColBERT's or BGE-M3's."""
    if source.pooling is not None and source.pooling.kind == _ALL:
        return source.pooling.dense
    for module in ("linear", COLBERT):
        if source.has(f"{module}.weight"):
            size = _outputs(source, f"{module}.weight")
            return (Dense(module, size, source.has(f"{module}.bias")),)
    return ()


def _outputs(source: ModelSource, name: str) -> int:
    """The rows of the matrix `name`, whose number no configuration states."""
    shape = source.tensor(name).shape
    if len(shape) != 2 or not shape[0]:
        raise WeightsError(f"{source.path}: {name} is of the shape {shape}, which is no matrix")
    return shape[0]


def _classifier(source: ModelSource, model: Model, task: Task, pooling: str | None) -> Tail:
    if task is Task.TOKEN_CLASSIFY and source.has(f"{SPARSE}.weight"):
        weight = Classes(("weight",), "relu")
        return Tail(task, _ALL, classes=weight, dense=(Dense(SPARSE, 1, bias=True),))
    tag = _step_tag(source, task)
    if source.config.get(FROM_TOKENS) is not None:
        classes, kind = read_classes(source.config), _ALL if task.by_token else pooling or "last"
        rows = _score_rows(source)
        sums, count = _sums(source, classes, rows), len(rows)
        return Tail(task, kind, classes=classes, step_tag=tag, sums=sums, score_rows=count)
    if find(source.architecture).task is not task or not isinstance(model, Classifier):
        end = "ForTokenClassification" if task.by_token else "ForSequenceClassification"
        raise ModelConfigError(
            f"--task {task} needs the head of a classifier, which {source.architecture} does not"
            f" have: use a checkpoint of an architecture that ends in {end}, or --task embed"
        )
    kind = _ALL if task.by_token else pooling or model.classifier_pooling
    reward = next((name for name in _REWARDS if source.has(name)), None)
    if task.by_token and reward is not None:
        classes = read_classes(source.config, _outputs(source, reward))
    else:
        classes = read_classes(source.config)
    return Tail(task, kind, classes=classes, step_tag=tag)


def _step_tag(source: ModelSource, task: Task) -> int | None:
    """The token behind each step of a solution, of models that judge steps: `step_tag_id`, or that
    of Qwen2's process reward models."""
    if task is not Task.TOKEN_CLASSIFY:
        return None
    stated = source.config.get(_STEP_TAG)
    if stated is not None and type(stated) is not int:
        raise ModelConfigError(f"{_STEP_TAG} is {shown(stated)}, not the id of a token")
    if stated is None and source.architecture.endswith("ForProcessRewardModel"):
        pieces = vocabulary(source).items()
        return next((index for index, piece in pieces if piece == "<extra_0>"), None)
    return stated


def _score_rows(source: ModelSource) -> Mapping[str, int]:
    """The tokens whose rows are those of a GGUF file's `score`; empty if it has none."""
    labels: Sequence[str] = source.config.get(SCORE_LABELS, ()) if source.gguf is not None else ()
    return {label: index for index, label in enumerate(labels)}


def _sums(
    source: ModelSource, classes: Classes, rows: Mapping[str, int]
) -> tuple[Mapping[int, float], ...]:
    """The logits of classes, as sums of those of tokens, or of `rows` if there are any."""
    ids = rows or {piece: index for index, piece in vocabulary(source).items()}
    for token in classes.tokens:
        if token not in ids:
            raise ModelConfigError(
                f"{FROM_TOKENS}: the tokenizer of {source.path} has no token {token!r:.40}; name"
                " them as its vocabulary does"
            )
    found = [ids[token] for token in classes.tokens]
    if classes.opposed:
        return ({found[1]: 1.0, found[0]: -1.0},)
    return tuple({index: 1.0} for index in found)


def trace_tail(weights: Weights, model: Model, hidden: Tensor, tail: Tail) -> None:
    """Traces the tail on hidden [T, H], up to the outputs of the program."""
    trace = weights.trace
    if tail.pooling is None:
        rows = ops.select_rows(hidden, trace.input("logits_rows", "i32", ("logits_rows",)))
        trace.output("logits", model.logits(weights, rows))
    elif tail.classes is None or tail.dense:
        trace.output("pooled", _vectors(weights, model, hidden, tail, tail.pooling))
    elif tail.sums and tail.score_rows:
        rows = pool(hidden, tail.pooling, dtype=ACT)
        shape = (tail.score_rows, model.traits.hidden_size)
        matrix = weights.combined_rows("score.weight", shape, tail.sums)
        trace.output("pooled", ops.linear(rows, matrix, dtype="f32"))
    elif tail.sums:
        if not isinstance(model, TokenScorer):
            raise ModelConfigError(f"{FROM_TOKENS} needs a decoder; use another --task")
        by_token = tail.pooling == _ALL
        rows = hidden if by_token else pool(hidden, tail.pooling, dtype=ACT)
        trace.output("pooled", model.token_logits(weights, rows, tail.sums))
    else:
        assert isinstance(model, Classifier)
        labels = len(tail.classes.labels)
        if tail.pooling == _ALL:
            scores = model.classify_tokens(weights, hidden, labels)
        else:
            rows = pool(model.before_pooling(weights, hidden), tail.pooling, dtype=ACT)
            scores = model.classify(weights, rows, labels)
        trace.output("pooled", scores)


def _vectors(weights: Weights, model: Model, hidden: Tensor, tail: Tail, pooling: str) -> Tensor:
    """hidden [T, H] -> f32 [R, width], or of vectors of tokens [T, width]."""
    if pooling == _SPLADE:
        if not isinstance(model, MaskedModel):
            raise ModelConfigError(
                "the pooling splade needs the head of a masked language model: use a checkpoint of"
                " an encoder with one, such as BERT, or another --pooling-type"
            )
        hidden = model.masked_logits(weights, hidden)
    if not tail.dense:
        return pool(hidden, pooling, normalize=tail.normalize)
    x = hidden if pooling == _ALL else pool(hidden, pooling, dtype=ACT)
    for layer in tail.dense:
        if layer.activation not in _ACTIVATIONS:
            known = ", ".join(_ACTIVATIONS)
            raise ModelConfigError(
                f"the activation {layer.activation!r:.40} of a Dense module; known: {known}"
            )
        x = linear(weights, layer.module, x, (layer.size,), bias=layer.bias)
        kind = _ACTIVATIONS[layer.activation]
        x = x if kind is ops.ActivationKind.IDENTITY else ops.activation(x, kind)
    return pool(x, _ALL, normalize=tail.normalize)
