"""Options of the model's execution."""

import re
from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option

_DEVICE = re.compile(r"auto|cpu|[a-z][a-z0-9_]*(:[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """Execution: executor, threads and numeric types."""

    executor: str = option(
        "native",
        "native: compiled kernels for this CPU. torch: the same program with torch's operators,"
        " which is slow and needs torch; it is the reference that kernels are tested against.",
        allowed=("native", "torch"),
    )
    device: str = option(
        "auto",
        "What runs the model: cpu, or a device of an installed plugin by its vendor, such as cuda"
        " or cuda:1 (the second one). auto: the first device of a plugin, if there is one that runs"
        " this model with these options, else the CPU; a line of the log says why. `pagemill"
        " doctor` lists plugins and devices.",
    )
    cpu_offload_gb: float = option(
        0.0,
        "GiB of each device's weights that stay in pinned host memory, where kernels read them over"
        " the bus in every step: the device has at least this much more room, and steps take"
        " longer. Embeddings go first, of which a step reads a row per token, unless the head"
        " shares them; then experts, of which it reads those that are chosen; then the largest"
        " matrices. Weights of draft models and encoders stay on the device.",
        unit="GiB",
        allowed=Range(0, 2**20),
    )
    threads: int = option(
        0,
        "Compute threads; 0 = one for each physical core that this process may use. With several"
        " ranks, threads per rank; 0 = one for each core of its share.",
        unit="threads",
        allowed=Range(0, 1024),
    )
    tensor_parallel_size: int = option(
        1,
        "Number of processes (ranks) on this machine that divide the model: each has a part of"
        " every large matrix, in memory near its own cores. Faster on a machine with several memory"
        " nodes; slower than one process on a machine with one node.",
        unit="ranks",
        allowed=Range(1, 64),
    )
    pipeline_parallel_size: int = option(
        1,
        "Number of stages that the layers are divided into. Each has the weights and the KV cache"
        " of its layers, and --tensor-parallel-size processes (ranks) on this machine, with memory"
        " near its own cores. Stages compute steps of different requests at the same time; a single"
        " request uses the cores of one stage at a time.",
        unit="stages",
        allowed=Range(1, 64),
    )
    enable_expert_parallel: bool = option(
        False,
        "With several ranks, each has whole experts of a mixture instead of a part of every expert:"
        " for experts whose width does not divide among ranks, such as those in few blocks with a"
        " scale each, and matrices that stay large enough to compute fast. A step takes as long as"
        " the rank whose experts are chosen most often.",
    )
    dtype: str = option(
        "auto",
        "Type of activations, the values between operations. auto: f32, which is fast on CPUs;"
        " bf16 on a device."
        " With bf16 or f16 the native executor computes each operation in f32 with a plain kernel"
        " and rounds the result, which is many times slower: for comparing results with those of a"
        " GPU. float32 and float are f32, bfloat16 is bf16, float16 and half are f16. Logits are"
        " f32 in any case; the KV cache has a type of its own (--kv-cache-dtype).",
        allowed=(
            "auto",
            "f32",
            "float32",
            "float",
            "bf16",
            "bfloat16",
            "f16",
            "float16",
            "half",
        ),
    )
    activation_dtype: str = option(
        "auto",
        "Lowest precision to which activations may be rounded in products with weights, if this"
        " makes this CPU faster. f32: no rounding. auto: with bf16 weights, bf16; with quantized"
        " weights, integers of 8 bits in blocks of 32 with a scale each, and of 15 in blocks with"
        " outliers (SmolLM2's perplexity rises by 0.07 %); with int8 weights that were made for"
        " int8 activations (W8A8), those, and on a GPU with fp8 weights likewise fp8; over a bf16"
        " KV cache, attention rounds queries and softmax weights to bf16, too. int8: as auto, but"
        " with quantized weights 8 bits in all blocks: SmolLM2's perplexity rises by 0.34 %, and if"
        " two tokens are nearly equally likely, greedy decoding may choose the other.",
        allowed=("auto", "f32", "int8"),
    )
    pack_cache: bool = option(
        True,
        "Keep weights packed for this CPU's kernels in the folder `packed` of the cache folder:"
        " the next start maps them, and several processes share them; if this system keeps files"
        " in small pages, which are read more slowly, they are copied instead. A tenth of the disk"
        " stays free: the least recently used files are removed first, and those not used for 30"
        " days.",
    )
    numa: str = option(
        "auto",
        "Placement of weights and KV cache on a machine with several memory nodes. auto: on the"
        " node of the threads if all are on one node, as those of a rank should be; else"
        " interleaved over the nodes of the threads. off: the system's default. No effect with one"
        " node.",
        allowed=("auto", "off"),
    )
    deterministic: bool = option(
        False,
        "Run no kernel with which a request's result may depend on what else is in its batch. The"
        " CPU has none; on NVIDIA's GPUs attention by FlashInfer, products of many rows by"
        " cuBLASLt, those of experts and of fp8 weights on Hopper, and prompts of the gated delta"
        " rule in chunks are such kernels, and faster.",
    )
    kernel_filter: str = option(
        "",
        "Run every operation that has a kernel of this name, such as portable or reference, with"
        " it, and the others with their best kernel: to find out whether a kernel is wrong, or"
        " faster. A name without any kernel in the model is refused with the list of names."
        " `pagemill doctor` shows the chosen kernels.",
    )

    @property
    def ranks(self) -> int:
        """Processes that run the model together."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def offload_bytes(self) -> int:
        """`cpu_offload_gb` in bytes."""
        return int(self.cpu_offload_gb * 2**30)

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        if _DEVICE.fullmatch(self.device) is None:
            raise ConfigError(
                f"--device: {self.device!r} is none of auto, cpu, and vendors like cuda or cuda:1"
            )
