"""ERNIE 1 to 3: BERT, later with an embedding of the task, which is the first one here."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.computed import row
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import flag, positive_int
from pagemill.models.encoders.encoder import Encoder, MaskedHead
from pagemill.ops.trace import Tensor


class ErnieModel(Encoder):
    """One ERNIE encoder."""

    base_prefix = "ernie."
    masked = MaskedHead(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        has_tasks = flag(config, "use_task_id", False)
        self._tasks = positive_int(config, "task_type_vocab_size", 3) if has_tasks else 0

    def add_types(self, weights: Weights, inputs: StepInputs, x: Tensor) -> Tensor:
        x = super().add_types(weights, inputs, x)
        if not self._tasks:
            return x
        name = self.name("embeddings.task_type_embeddings.weight")
        return ops.add(x, row(weights, name, 0, (self._tasks, x.width)))

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
