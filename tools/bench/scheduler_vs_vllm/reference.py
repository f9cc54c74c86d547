"""Times the scheduler of vLLM without a model. compare.py runs it, in vLLM's own environment.

Reads one case a line from standard input, as JSON (`seqs`, `context`, `prefills`, `steps`), and
writes the medians of its steps as JSON: `schedule_us`, `update_us`. Blocks of 16 tokens, prefix
caching on, everything else as vLLM has it by default except asynchronous scheduling, which is off.
"""

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch  # noqa: E402
import vllm  # noqa: E402
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

BLOCK_SIZE = 16
VOCAB_SIZE = 50000
MAX_MODEL_LEN = 1 << 21
MAX_NUM_TOKENS = 16384

# The configuration of a model that is never loaded.
MODEL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_MODEL_LEN,
    "torch_dtype": "float32",
}


class Driver:
    """A scheduler, and requests like those of //cc/scheduler:scheduler_benchmark."""

    def __init__(self, model: str, num_seqs: int, num_blocks: int) -> None:
        cache = CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True)
        cache.num_gpu_blocks = num_blocks
        config = VllmConfig(
            cache_config=cache,
            model_config=ModelConfig(
                model=model, skip_tokenizer_init=True, dtype="float32", max_model_len=MAX_MODEL_LEN
            ),
            scheduler_config=SchedulerConfig(
                async_scheduling=False,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
                max_model_len=MAX_MODEL_LEN,
                max_num_batched_tokens=MAX_NUM_TOKENS,
                max_num_seqs=num_seqs,
            ),
        )
        attention = FullAttentionSpec(
            block_size=BLOCK_SIZE, num_kv_heads=2, head_size=16, dtype=torch.float32
        )
        blocks = KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
        )
        self.scheduler = Scheduler(
            config, blocks, StructuredOutputManager(config), block_size=BLOCK_SIZE, log_stats=False
        )
        hash_function = get_hash_fn_by_name(cache.prefix_caching_hash_algo)
        init_none_hash(hash_function)
        self._block_hasher = get_request_block_hasher(BLOCK_SIZE, hash_function)
        self._num_added = 0

    def add(self, prompt_size: int, max_tokens: int) -> None:
        """Adds a request; its block hashes are computed here, outside the timed step."""
        self._num_added += 1
        i = self._num_added
        prompt = [(i * 7919 + j * 31) % VOCAB_SIZE for j in range(prompt_size)]
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        request = Request(str(i), prompt, sampling, None, block_hasher=self._block_hasher)
        self.scheduler.add_request(request)

    def step(self) -> tuple[int, int]:
        """Runs one step; returns the nanoseconds of its schedule() and of its update."""
        started = time.thread_time_ns()
        plan = self.scheduler.schedule()
        planned = time.thread_time_ns()
        ids = list(plan.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=[[7] for _ in ids],
        )
        answered = time.thread_time_ns()
        self.scheduler.update_from_output(plan, output)
        return planned - started, time.thread_time_ns() - answered


def measure(model: str, case: dict[str, int]) -> dict[str, float]:
    """Returns the medians of one case, in microseconds."""
    seqs, context, prefills = case["seqs"], case["context"], case["prefills"]
    blocks_each = context // BLOCK_SIZE + 800
    driver = Driver(model, seqs + prefills, (seqs + prefills) * blocks_each + 1)
    for _ in range(seqs):
        driver.add(context, 500000)
    for _ in range(2 + seqs * (context // MAX_NUM_TOKENS + 1) // 16):
        driver.step()
    assert len(driver.scheduler.running) == seqs, "the contexts are not computed yet"
    gc.collect()
    gc.freeze()  # as vLLM's engine process does
    times = []
    for _ in range(case["steps"]):
        for _ in range(prefills):
            driver.add(context, 1)
        times.append(driver.step())
    return {
        "schedule_us": statistics.median(time[0] for time in times) / 1e3,
        "update_us": statistics.median(time[1] for time in times) / 1e3,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as model:
        Path(model, "config.json").write_text(json.dumps(MODEL_CONFIG))
        print(json.dumps({"version": vllm.__version__}), flush=True)
        for line in sys.stdin:
            print(json.dumps(measure(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
