"""What runs the model's program."""

from dataclasses import dataclass

from pagemill.config.fields import Range, check, option


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """Execution: which executor, on how many threads."""

    executor: str = option(
        "native",
        "native: compiled kernels for this CPU. torch: the same program with torch's operators,"
        " which is slow and needs torch; it is the reference that kernels are tested against.",
        allowed=("native", "torch"),
    )
    threads: int = option(
        0,
        "Threads that compute; 0 is one for each physical core this process may use. With several"
        " ranks, threads of each; 0 is one for each core of its share.",
        unit="threads",
        allowed=Range(0, 1024),
    )
    tensor_parallel_size: int = option(
        1,
        "Processes of this machine that divide the model among them (ranks): each has a part of"
        " every large matrix, in memory near its own cores. Worth it where a machine has several"
        " memory nodes; on one node it is slower than one process with all cores.",
        unit="ranks",
        allowed=Range(1, 64),
    )
    dtype: str = option(
        "auto",
        "Type of activations: what operations pass on to one another. auto: f32, the fast one on"
        " CPUs. With bf16 or f16 the native executor computes each operation in f32 with a plain"
        " kernel and rounds the result, many times slower: to compare results with those of a"
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
        "What activations may be rounded to while they are multiplied with weights, where this CPU"
        " is faster for it. f32: nothing. auto: with bf16 weights, bf16; with quantized weights,"
        " integers of 8 bits in blocks of 32 with a scale each, and of 15 in blocks with outliers"
        " (SmolLM2's perplexity rises by 0.07 %); with int8 weights that were made for"
        " int8 activations (W8A8), those; over a bf16 KV cache, attention rounds queries and"
        " softmax weights to bf16, too. int8: as auto, but with quantized weights 8 bits in all"
        " blocks: SmolLM2's perplexity rises by 0.34 %, and where two tokens are nearly as likely,"
        " greedy decoding may take the other.",
        allowed=("auto", "f32", "int8"),
    )
    pack_cache: bool = option(
        True,
        "Keep weights in the order in which this CPU's kernels read them, in the folder `packed` of"
        " the cache folder: the next start maps them, and several processes share them, or copies"
        " them where this system keeps files in small pages, which are read more slowly. A"
        " tenth of the disk stays free: those not used for longest go first, and those not used for"
        " 30 days.",
    )
    numa: str = option(
        "auto",
        "Where weights and KV cache lie on a machine with several memory nodes. auto: on the node"
        " of the threads where they all are on one, as those of a rank should be; else interleaved"
        " over the nodes of the threads. off: as the system does. With one node there is nothing to"
        " place.",
        allowed=("auto", "off"),
    )
    kernel_filter: str = option(
        "",
        "Run every operation that has one by the kernel of this name, such as portable or"
        " reference, and the others by their best: to find out whether a kernel is at fault, or is"
        " faster."
        " A name that no operation of the model has a kernel of is refused with the names there"
        " are. `pagemill doctor` shows what is chosen.",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
