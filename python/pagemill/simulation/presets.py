"""Devices and models that `pagemill simulate` knows by name, with the source of each figure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One device. Peaks are dense, of the type that matrix multiplies run in (bf16 on GPUs).

    The efficiencies and the overhead are assumptions, not data sheet figures: what well-tuned
    kernels and a C++ step loop reach on such a device. Measure your own and say so with
    `--compute-efficiency`, `--bandwidth-efficiency` and `--step-overhead-us`.
    """

    peak_flops: int  # operations/s
    bandwidth_bytes: int  # bytes/s
    memory_bytes: int
    compute_efficiency: float
    bandwidth_efficiency: float
    step_overhead_us: float
    source: str


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a dense decoder."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    source: str
    num_mlp_matrices: int = 3  # with a gate


_GPU = (0.6, 0.8, 500.0)

DEVICES = {
    "a100": Device(
        312 * 10**12, 2_039 * 10**9, 80 * 10**9, *_GPU, "NVIDIA A100 80GB data sheet (SXM)"
    ),
    "cpu-2core": Device(
        494 * 10**9,
        26_700 * 10**6,
        16 * 10**9,
        0.7,
        0.7,
        100.0,
        "two cores with AVX-512: cc/ops/linear/README.md (247 GFLOP/s a core) and reading 2 GiB"
        " with both; 58 to 80 % of the limits reached there",
    ),
    "h100": Device(
        989_400 * 10**9,
        3_350 * 10**9,
        80 * 10**9,
        *_GPU,
        "NVIDIA H100 data sheet (SXM; 1,979 TFLOP/s there are with sparsity)",
    ),
    "h200": Device(
        989_400 * 10**9,
        4_800 * 10**9,
        141 * 10**9,
        *_GPU,
        "NVIDIA H200 data sheet (SXM; 1,979 TFLOP/s there are with sparsity)",
    ),
    "l40s": Device(
        362_050 * 10**9, 864 * 10**9, 48 * 10**9, *_GPU, "NVIDIA L40S data sheet (without sparsity)"
    ),
    "mi300x": Device(
        1_307_400 * 10**9, 5_300 * 10**9, 192 * 10**9, *_GPU, "AMD Instinct MI300X data sheet"
    ),
}

_HUB = "config.json of huggingface.co/"

MODELS = {
    "llama-3.1-70b": Model(
        80, 8192, 64, 8, 128, 28672, 128256, False, _HUB + "meta-llama/Llama-3.1-70B"
    ),
    "llama-3.1-8b": Model(
        32, 4096, 32, 8, 128, 14336, 128256, False, _HUB + "meta-llama/Llama-3.1-8B"
    ),
    "mistral-7b": Model(
        32, 4096, 32, 8, 128, 14336, 32768, False, _HUB + "mistralai/Mistral-7B-v0.3"
    ),
    "qwen2.5-0.5b": Model(24, 896, 14, 2, 64, 4864, 151936, True, _HUB + "Qwen/Qwen2.5-0.5B"),
    "qwen2.5-7b": Model(28, 3584, 28, 4, 128, 18944, 152064, False, _HUB + "Qwen/Qwen2.5-7B"),
    "smollm2-135m": Model(
        30, 576, 9, 3, 64, 1536, 49152, True, _HUB + "HuggingFaceTB/SmolLM2-135M-Instruct"
    ),
}
