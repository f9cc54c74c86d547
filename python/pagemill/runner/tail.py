"""The tail of a program: what is computed of a model's last vectors.

A model generates, or it pools: the vectors of a prompt become one by a pooling, or all stay; the
head of a classifier may follow. The files say which, and an operator may choose otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.inputs.task import Pooled, Task
from pagemill.layers.base import Weights
from pagemill.layers.pooler import KINDS, pool
from pagemill.models.base import Classifier, Model, ModelConfigError
from pagemill.models.table import find
from pagemill.ops.program import ACT
from pagemill.ops.trace import Tensor
from pagemill.weights.classes import Classes, read_classes
from pagemill.weights.pooling import matryoshka_sizes
from pagemill.weights.source import ModelSource

_ALL = "all"


@dataclass(frozen=True, slots=True)
class Tail:
    """`pooling` is a kind of `layers.pooler`, None if the model generates. Vectors have the length
    1 if `normalize`; `classes` are those of a classifier."""

    task: Task
    pooling: str | None = None
    normalize: bool = False
    classes: Classes | None = None
    max_seq_length: int | None = None

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
            )
        return Pooled(
            task=self.task,
            width=model.traits.hidden_size,
            pooling=self.pooling,
            normalizes=self.normalize,
            sizes=matryoshka_sizes(source.config),
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
    made_for = find(source.architecture).task
    if task is None:
        embeds = source.pooling is not None or pooling is not None
        task = Task.EMBED if embeds and made_for is Task.GENERATE else made_for
    name, traits = source.architecture, model.traits
    if task is Task.GENERATE:
        if not traits.generates:
            raise ModelConfigError(f"{name} does not generate text; use --task embed")
        return Tail(task)
    if pooling is not None and (task.by_token or pooling not in KINDS or pooling == _ALL):
        what = f"--task {task} takes all tokens" if task.by_token else f"no pooling {pooling!r:.40}"
        raise ModelConfigError(f"{what}; leave out --pooling-type, or choose one of its values")
    if task.classifies:
        return _classifier(source, model, task, pooling)
    limit = None if source.pooling is None else source.pooling.max_seq_length
    if task.by_token:
        return Tail(task, _ALL, normalize, None, limit)
    if pooling is None and source.pooling is not None:
        return Tail(task, source.pooling.kind, source.pooling.normalize, None, limit)
    default = "last" if traits.causal else "mean"
    return Tail(task, pooling or default, normalize, None, limit)


def _classifier(source: ModelSource, model: Model, task: Task, pooling: str | None) -> Tail:
    if find(source.architecture).task is not task or not isinstance(model, Classifier):
        end = "ForTokenClassification" if task.by_token else "ForSequenceClassification"
        raise ModelConfigError(
            f"--task {task} needs the head of a classifier, which {source.architecture} does not"
            f" have: use a checkpoint of an architecture that ends in {end}, or --task embed"
        )
    kind = _ALL if task.by_token else pooling or model.classifier_pooling
    return Tail(task, kind, classes=read_classes(source.config))


def trace_tail(weights: Weights, model: Model, hidden: Tensor, tail: Tail) -> None:
    """Traces the tail on hidden [T, H], up to the outputs of the program."""
    trace = weights.trace
    if tail.pooling is None:
        rows = ops.select_rows(hidden, trace.input("logits_rows", "i32", ("logits_rows",)))
        trace.output("logits", model.logits(weights, rows))
    elif tail.classes is None:
        trace.output("pooled", pool(hidden, tail.pooling, normalize=tail.normalize))
    else:
        assert isinstance(model, Classifier)
        labels = len(tail.classes.labels)
        if tail.pooling == _ALL:
            scores = model.classify_tokens(weights, hidden, labels)
        else:
            scores = model.classify(weights, pool(hidden, tail.pooling, dtype=ACT), labels)
        trace.output("pooled", scores)
