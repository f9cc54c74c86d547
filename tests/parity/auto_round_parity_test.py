"""Logits of AutoRound's checkpoints equal those of `transformers` on the values that they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pagemill.weights.source import ModelSource

from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import difference
from tests.parity.packed_checkpoints import Overrides, Scheme, write_packed

# See packed_parity_test.
EXACT, ROUNDED = 1e-4, 5e-3

CHECKPOINTS: dict[str, tuple[Scheme, Overrides, float]] = {
    "gptq-sym": (Scheme("gptq", group=64, zeros=False), {}, EXACT),
    "gptq-asym": (Scheme("gptq"), {}, ROUNDED),
    "awq": (Scheme("awq"), {}, ROUNDED),
    "mixed": (
        Scheme("gptq", zeros=False),
        {"down_proj": Scheme("gptq", 8, -1, zeros=False), "o_proj": None},
        EXACT,
    ),
}


def _section(scheme: Scheme, overrides: Overrides) -> dict[str, Any]:
    """As the library writes it: one module after the other, by name."""
    own: dict[str, Any] = {}
    for layer in range(2):
        for name, other in overrides.items():
            part = "mlp" if name == "down_proj" else "self_attn"
            own[f"model.layers.{layer}.{part}.{name}"] = (
                {"bits": 16, "data_type": "float"}
                if other is None
                else {"bits": other.bits, "group_size": other.group}
            )
    return {
        "quant_method": "auto-round",
        "packing_format": f"auto_round:auto_{scheme.layout}",
        "bits": scheme.bits,
        "group_size": scheme.group,
        "sym": not scheme.zeros,
        "data_type": "int",
        "block_name_to_quantize": "model.layers",
        "extra_config": own,
    }


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_prompt_and_decode(name: str, kind: str, tmp_path: Path) -> None:
    scheme, overrides, of_native = CHECKPOINTS[name]
    reference = write_packed(tmp_path, scheme, overrides)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = _section(scheme, overrides)
    path.write_text(json.dumps(config, default=str))
    tolerance = of_native if kind == "native" else EXACT
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= tolerance
