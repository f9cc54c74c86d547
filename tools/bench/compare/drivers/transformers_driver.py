"""Runs a causal model of transformers: transformers_driver.py MODEL_FOLDER THREADS."""

import sys
import time

import torch
from driver_loop import Generate, serve
from transformers import AutoModelForCausalLM, StoppingCriteria


class _Clock(StoppingCriteria):
    """Records the time of each step; never stops."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def _load() -> Generate:
    torch.set_num_threads(int(sys.argv[2]))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)

    @torch.inference_mode()
    def generate(prompts: list[list[int]], output_len: int) -> list[list[float]]:
        ids = torch.tensor(prompts)
        clock = _Clock()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=output_len,
            max_new_tokens=output_len,
            stopping_criteria=[clock],
            pad_token_id=0,
        )
        return [clock.times for _ in prompts]

    return generate


if __name__ == "__main__":
    serve(_load)
