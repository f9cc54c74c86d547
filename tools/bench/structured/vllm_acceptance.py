"""Which schemas vLLM accepts, in an environment that has it: vllm_acceptance.py FOLDER < schemas.

FOLDER has a tokenizer; schemas are JSON, one a line. Prints a line for each: the back end that
would take it, "refused", or "late" after 20 s. Each is looked at in a process of its own, since
some crash or never end.
"""

from __future__ import annotations

import multiprocessing
import sys
import types
from typing import Any

from transformers import AutoTokenizer
from vllm.config.structured_outputs import StructuredOutputsConfig
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

_SECONDS = 20


def _look(schema: str, tokenizer: Any, answer: Any) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputsParams(json=schema))
    model, config = types.SimpleNamespace(is_diffusion=False), StructuredOutputsConfig()
    try:
        params._validate_structured_outputs(model, config, tokenizer)  # noqa: SLF001
    except Exception:
        answer.put("refused")
    else:
        answer.put(params.structured_outputs._backend)  # noqa: SLF001


def main() -> None:
    """Looks at all schemas."""
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    context = multiprocessing.get_context("fork")
    for schema in sys.stdin:
        answer = context.SimpleQueue()
        process = context.Process(target=_look, args=(schema, tokenizer, answer))
        process.start()
        process.join(_SECONDS)
        is_late = process.is_alive()
        process.kill()
        print("late" if is_late else "crashed" if answer.empty() else answer.get(), flush=True)


if __name__ == "__main__":
    main()
