"""Runs OpenVINO GenAI's continuous batching: openvino_driver.py FILE.gguf THREADS."""

import sys
import time

import numpy as np
import openvino
import openvino_genai
from driver_loop import Generate, serve

_CACHE_GIB = 2
_STEP_TOKENS = 2048


def _load() -> Generate:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = _CACHE_GIB
    scheduler.enable_prefix_caching = True
    scheduler.max_num_batched_tokens = _STEP_TOKENS
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        sys.argv[1], scheduler, "CPU", {"INFERENCE_NUM_THREADS": int(sys.argv[2])}
    )
    config = openvino_genai.GenerationConfig()
    config.do_sample = False
    config.ignore_eos = True
    numbers = iter(range(1 << 60))

    def generate(prompts: list[list[int]], output_len: int) -> list[list[float]]:
        config.max_new_tokens = output_len
        handles = [
            pipeline.add_request(
                next(numbers), openvino.Tensor(np.array([prompt], dtype=np.int64)), config
            )
            for prompt in prompts
        ]
        times: list[list[float]] = [[] for _ in prompts]
        while pipeline.has_non_finished_requests():
            pipeline.step()
            now = time.perf_counter()
            for handle, of_prompt in zip(handles, times, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        of_prompt += [now] * len(output.generated_ids)
        return times

    return generate


if __name__ == "__main__":
    serve(_load)
