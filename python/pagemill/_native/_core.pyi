"""The compiled extension (cc/bindings). Written by hand; `native_test.py` compares the names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray

from pagemill.observe.snapshot import EngineSnapshot

version: str

class StatusError(Exception):
    """A refusal or failure of the core."""

    code: str
    """`INVALID_ARGUMENT`, `RESOURCE_EXHAUSTED`, ...: cc/base/status.h."""
    message: str
    retry_after_s: int
    """Seconds after which a retry makes sense; 0 = not known."""

# --- programs -------------------------------------------------------------------------------------

class ExecutorOptions:
    """cc/program/executor_options.h."""

    def __init__(
        self,
        *,
        num_threads: int = 0,
        max_num_tokens: int = 2048,
        max_num_seqs: int = 128,
        max_num_logits_rows: int = 256,
        num_blocks: int = 1,
        block_size: int = 16,
        kv_cache_dtype: Literal["bf16", "f32", "fp8", "int4", "int8", "k8v4"] = "bf16",
        kernel_filter: str = "",
        activation_dtype: Literal["f32", "bf16", "int8"] = "bf16",
        pack_cache_folder: str = "",
        place_memory: bool = True,
        activation_type: Literal["f32", "bf16", "f16"] = "f32",
        kv_page_bytes: int = 0,
        max_adapters: int = 0,
        max_draft_tokens: int = 0,
        state_checkpoints: bool = True,
        deterministic: bool = False,
    ) -> None: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def max_num_tokens(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_logits_rows(self) -> int: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def kv_cache_dtype(self) -> str: ...
    @property
    def activation_type(self) -> str: ...
    @property
    def kernel_filter(self) -> str: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def activation_dtype(self) -> str: ...

class MemoryPlan:
    """Bytes that a bound program takes; str() is a table."""

    @property
    def weights_bytes(self) -> int: ...
    @property
    def packed_bytes(self) -> int:
        """Of the weights, held as copies of our own instead of mapped."""
    @property
    def offloaded_bytes(self) -> int:
        """Of further weights, which a device reads from the host's memory; not in the total."""
    @property
    def activation_bytes(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def kv_page_bytes(self) -> int:
        """A page of the KV cache; 0 for a program without one."""
    @property
    def kv_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...

class CpuCapabilities:
    """What this CPU can do (cc/device/capabilities.h); str() lists it."""

    @property
    def avx2(self) -> bool: ...
    @property
    def avx_vnni(self) -> bool: ...
    @property
    def avx512(self) -> bool: ...
    @property
    def avx512_vnni(self) -> bool: ...
    @property
    def avx512_bf16(self) -> bool: ...
    @property
    def amx_bf16(self) -> bool: ...
    @property
    def amx_int8(self) -> bool: ...
    @property
    def asimd_dotprod(self) -> bool: ...
    @property
    def asimd_bf16(self) -> bool: ...
    @property
    def asimd_i8mm(self) -> bool: ...
    @property
    def vxe(self) -> bool: ...
    @property
    def cores(self) -> int: ...

def detect_capabilities() -> CpuCapabilities: ...
def rewrite_program(text: str) -> str:
    """The same model with fused ops; raises StatusError that names the line."""

def plan_memory(text: str, options: ExecutorOptions) -> MemoryPlan:
    """Opens no weight file."""

class KvGroupOptions:
    """What layers that share block tables need of the KV cache: cc/step/kv_group_options.h."""

    def __init__(
        self,
        *,
        kind: str = "full",
        block_size: int = 0,
        window_tokens: int = 0,
        checkpoints: bool = True,
        recent_states: int = 0,
    ) -> None: ...
    @property
    def kind(self) -> str: ...
    @property
    def block_size(self) -> int:
        """0: the cache's."""
    @property
    def window_tokens(self) -> int: ...
    @property
    def recent_states(self) -> int: ...

def kv_groups(text: str, options: ExecutorOptions) -> list[KvGroupOptions]:
    """The KV groups of a program as the native executor pages them."""

def max_kv_pages(
    *,
    groups: Sequence[KvGroupOptions],
    block_size: int,
    max_step_tokens: int,
    num_tokens: int,
    max_steps_in_flight: int = 1,
) -> int:
    """Most pages that one request of `num_tokens` tokens holds at a time."""

def kernel_choices(
    text: str, options: ExecutorOptions, device: Device | None = None
) -> list[tuple[str, str, str, int]]:
    """(op, operands, kernel, count), in order of first use, on this CPU or on `device`."""

# --- executors ------------------------------------------------------------------------------------

class SharedSegment:
    """The memory that all ranks share: of `tensor` ranks for each of `pipeline` stages. Ranks of a
    stage have numbers next to each other."""

    def __init__(self, tensor: int, pipeline: int = 1) -> None: ...
    @staticmethod
    def open(fd: int) -> SharedSegment:
        """Maps what another process has made; `fd` stays the caller's."""
    @property
    def fd(self) -> int:
        """For other processes to inherit; -1 if the segment was opened."""

class PageSegment:
    """The memory through which rank 0 copies KV pages, of `page_bytes` bytes, of the other ranks
    of a host."""

    def __init__(self, num_ranks: int, page_bytes: int) -> None: ...
    @staticmethod
    def join(fd: int, rank: int) -> PageSegment:
        """Maps what rank 0 has made, for another rank; `fd` stays the caller's."""
    @property
    def fd(self) -> int:
        """For other processes to inherit; -1 if the segment was joined."""

class World:
    """One rank's place among all ranks. A rank that dies or leaves ends the world for all: then its
    methods, and steps of executors in it, raise UNAVAILABLE."""

    def __init__(self, segment: SharedSegment, rank: int, *, spin_us: int = 100) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def num_ranks(self) -> int: ...
    def wait_for_all(self, limit_s: float) -> None:
        """Returns when every rank has joined; UNAVAILABLE names those that have not."""
    def meet(self) -> None:
        """Returns when every rank has called it."""
    def leave(self) -> None: ...

class NodesWorld(World):
    """The place of a rank of several machines (nodes), each with equally many ranks in order."""

    def __init__(
        self,
        rank: int,
        segment: SharedSegment | None,
        *,
        master: str,
        secret: str,
        tensor: int,
        pipeline: int,
        num_nodes: int,
        version: str,
        model: bytes,
        options: bytes,
        number: int,
    ) -> None:
        """`segment`: of the ranks of this node, if it has whole tensor-parallel groups of several.
        Rank 0 listens at `master`, an IP address and a port, to which the others connect; all have
        the `secret`, "" only at a loopback address. Ranks whose `version` or digests (32 bytes) of
        `model` and `options` differ are refused: FAILED_PRECONDITION of `wait_for_all`."""
    @property
    def number(self) -> int:
        """The smallest `number` of all ranks, which have joined."""
    @property
    def is_done(self) -> bool:
        """Whether the world has ended because rank 0 was done."""
    def check(self) -> None:
        """UNAVAILABLE names a rank whose connection is over; from any thread."""
    def note_death(self) -> None:
        """A rank has died, as this process knows: `leave` does not say that this one is done; from
        any thread."""

class Stage:
    """A rank's part of a step, if there are several stages. Rank 0, and those that divide its
    layers with it, have the last stage, the ranks behind them the others in order."""

    def __init__(self, tables: list[int], sends: list[str]) -> None:
        """`tables`: of the runner's KV groups, those of the rank's program. `sends`: the inputs of
        the next stage's program."""

def follow_steps(
    executor: NativeExecutor | DeviceExecutor,
    world: World,
    adapters: AdapterStore | None = None,
    stage: Stage | None = None,
    page_segment: PageSegment | None = None,
) -> None:
    """Runs the steps of rank 0's runner on this rank, until that ends; `adapters` has this rank's
    part of those of rank 0. Only a NativeExecutor may have a `stage`. Pages are copied through
    `page_segment`, if rank 0's runner has it."""

class NativeExecutor:
    """Runs a program with the CPU's kernels."""

    def __init__(
        self,
        text: str,
        options: ExecutorOptions,
        world: World | None = None,
        host: NativeExecutor | None = None,
    ) -> None:
        """`world`: the ranks that the program was divided among, if it was; its threads then
        stay on this rank's share of the CPUs. `host`: the executor on whose threads and KV pages
        this one runs; it has to outlive the last step."""
    def __call__(self, batch: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
        """One step, outside an engine: the arrays of a batch by name (cc/bindings/batch_arrays.h)
        in, copies of the program's outputs by name out."""
    @property
    def table_block_sizes(self) -> list[int]:
        """Tokens of a block in each of the block tables that a batch has."""
    @property
    def memory_plan(self) -> MemoryPlan: ...
    @property
    def packed_from_cache(self) -> bool: ...
    @property
    def pack_cache_error(self) -> str:
        """Why packed weights could not be stored; empty if they were, or need not be."""
    @property
    def pack_cache_damage(self) -> str:
        """What was wrong with the file of packed weights, if it was damaged and is replaced."""
    @property
    def memory_placement(self) -> str:
        """Where weights and KV cache lie, or why the system refused; empty: nothing to place."""
    def kv_fingerprint(self) -> str:
        """What KV depends on besides tokens. Reads all files of weights, unless their digests are
        known; without the GIL."""

class FoundDevice:
    """A device that a plugin has found: cc/program/device/device_plugin.h."""

    @property
    def name(self) -> str: ...
    @property
    def architecture(self) -> str:
        """Such as "sm_90"."""
    @property
    def memory_bytes(self) -> int: ...

class DevicePlugin:
    """A vendor's shared object. What is wrong with it is raised as a StatusError: with the path if
    it cannot be loaded, and in a sentence if it has no device."""

    def __init__(self, path: str) -> None: ...
    @property
    def vendor(self) -> str: ...
    def devices(self) -> list[FoundDevice]:
        """By index. Takes no memory of them."""
    def advice(self) -> list[str]:
        """What is not installed and would make the devices faster, in sentences."""
    def open(self, index: int) -> Device: ...

class Device:
    """A device that was opened."""

    @property
    def vendor(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def kernels(self) -> dict[str, list[str]]:
        """The names of each op's kernels, the best first."""
    @property
    def free_bytes(self) -> int:
        """Of its memory, now."""

class DeviceExecutor:
    """Runs a program on a device, with up to two steps in flight, for one ModelRunner with limits
    of the same `max_model_len` and `vocab_size`. Keeps the device alive.

    With a `host`, another executor on the same device, it is one of a draft model: its steps are
    among the host's, and its KV is in pages of the host's, with `options.kv_page_bytes` and as many
    pages as that has; `vocab_size` is then the draft model's, at most that of the limits. Keeps the
    host alive."""

    def __init__(
        self,
        device: Device,
        text: str,
        options: ExecutorOptions,
        world: World | None = None,
        *,
        max_model_len: int,
        vocab_size: int,
        max_adapter_rank: int = 1,
        host: DeviceExecutor | None = None,
        offload_bytes: int = 0,
    ) -> None:
        """Each of options.max_adapters slots has memory for an adapter of `max_adapter_rank` in
        all layers. At least `offload_bytes` of the weights stay in the host's memory, where kernels
        read them."""
    def kv_fingerprint(self) -> str:
        """As that of a NativeExecutor."""

def plan_on_device(
    device: Device,
    text: str,
    options: ExecutorOptions,
    *,
    max_model_len: int,
    vocab_size: int,
    max_adapter_rank: int = 1,
    drafts: bool = False,
    offload_bytes: int = 0,
) -> MemoryPlan:
    """What a DeviceExecutor takes of the device's memory; with `drafts` one that has a host, whose
    pages count as its own here. Opens no weight file."""

class PythonExecutor:
    """Runs a step by calling Python, on the engine's thread, with the GIL held.

    The callable gets a batch of read-only int32 arrays by name (cc/bindings/batch_arrays.h), valid
    during the call. It returns the program's outputs by name: C-contiguous float32 arrays in host
    memory, "logits" [logits_rows, vocab] and "pooled" [requests, dim] among them. What it raises
    fails the step.
    """

    def __init__(
        self, callable: Callable[[dict[str, Any]], dict[str, NDArray[np.float32]]]
    ) -> None: ...

# --- the engine -----------------------------------------------------------------------------------

class RunnerLimits:
    """What a runner can hold: cc/engine/runner.h."""

    def __init__(
        self,
        *,
        max_num_tokens: int = 2048,
        max_num_seqs: int = 128,
        max_num_logits_rows: int = 256,
        max_model_len: int = 2048,
        vocab_size: int,
        num_blocks: int,
        block_size: int = 16,
        kv_groups: Sequence[KvGroupOptions] = ...,
        chunked_prefill: bool = True,
        prefix_caching: bool = True,
        pooling: bool = False,
        token_rows: bool = False,
        max_draft_tokens: int = 0,
        max_forced_tokens: int = 0,
        max_encoder_tokens: int = 0,
        encoder_cache_tokens: int = 0,
        max_adapters: int = 0,
        routed_experts_per_token: int = 0,
    ) -> None:
        """`kv_groups`: one of full attention by default; for a NativeExecutor those that
        `kv_groups` makes of its program."""
    @property
    def max_num_tokens(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_logits_rows(self) -> int: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def kv_groups(self) -> list[KvGroupOptions]: ...
    @property
    def chunked_prefill(self) -> bool: ...
    @property
    def prefix_caching(self) -> bool: ...
    @property
    def max_draft_tokens(self) -> int: ...
    @property
    def max_forced_tokens(self) -> int: ...
    @property
    def max_encoder_tokens(self) -> int: ...
    @property
    def encoder_cache_tokens(self) -> int: ...
    @property
    def max_adapters(self) -> int: ...
    @property
    def routed_experts_per_token(self) -> int: ...
    @property
    def pooling(self) -> bool: ...
    @property
    def token_rows(self) -> bool: ...

class AdapterWeights:
    """One adapter for a program: cc/program/adapters/adapter_weights.h."""

    @property
    def bytes(self) -> int: ...

def make_adapter(
    executor: NativeExecutor | DeviceExecutor,
    layers: Sequence[
        tuple[
            str,
            int,
            NDArray[Any] | None,
            NDArray[Any] | None,
            float,
            NDArray[Any] | None,
            NDArray[Any] | None,
        ]
    ],
) -> AdapterWeights:
    """`layers`: the name of a value of the program that is an adapter, the number of an expert or
    0, lora_A [rank, in] and lora_B [out, rank] (float32, float16, or bf16 as uint16), the factor of
    their product, and gain and offset (float32 [out]) of the layer's result. Copies the arrays."""

class AdapterStore:
    """The adapters that requests of a runner may name: cc/runner/adapters/adapter_store.h."""

    def __init__(self) -> None: ...
    def add(self, adapter: int, parts: Sequence[AdapterWeights | None]) -> None:
        """`adapter`: a new id, of `Engine.new_adapter_id`. `parts` are for the model's program,
        then for those of its encoders; None, or missing at the end: it stays as it is."""
    def remove(self, adapter: int) -> None:
        """Requests that run keep it; those that begin later fail."""

class OpTime:
    """Time spent in one kind of op; cc/program/op_profile.h."""

    @property
    def op(self) -> str: ...
    @property
    def matrix(self) -> str:
        """Its weights of two dimensions, `q4_1[960,576]`; empty if it has none."""
    @property
    def kernel(self) -> str: ...
    @property
    def calls(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def waited_s(self) -> float:
        """Of all threads together, outside the op's work."""
    @property
    def bytes(self) -> float:
        """Of weights and activations, once each; not the KV cache."""
    @property
    def operations(self) -> float:
        """Multiplications and additions with the matrix."""

class LayerTime:
    """Time spent in one layer; cc/program/op_profile.h."""

    @property
    def layer(self) -> str:
        """`layer.0`, to which what comes before belongs; `end` for what comes last."""
    @property
    def seconds(self) -> float: ...

class StepProfile:
    """Sums over the steps of one kind; cc/runner/step_times.h."""

    @property
    def num_threads(self) -> int:
        """That run ops; 1 of a `PythonExecutor`."""
    @property
    def steps(self) -> int: ...
    @property
    def batch_s(self) -> float: ...
    @property
    def model_s(self) -> float: ...
    @property
    def collect_s(self) -> float:
        """Of `model_s`; on a device, the time that the host waits for it."""
    @property
    def sampling_s(self) -> float: ...
    @property
    def between_s(self) -> float: ...
    @property
    def ops(self) -> list[OpTime]:
        """Slowest first; empty of a `PythonExecutor`."""
    @property
    def layers(self) -> list[LayerTime]:
        """In their order; empty of a `PythonExecutor`."""

class MediaEncoderOptions:
    """What a runner knows of an encoder: cc/runner/media/media_encoder.h."""

    def __init__(
        self,
        *,
        rows: int,
        channels: int,
        tokens: int,
        class_tokens: int = 0,
        width: int,
        max_items: int = 1,
        max_step_tokens: int = 0,
        any_size: bool = False,
        grid: bool = False,
        placed: bool = False,
        tile_rows: int = 0,
        vocab_size: int = 0,
    ) -> None: ...

class SuffixProposerOptions:
    """Drafts from the outputs of earlier requests (cc/sampling/suffix_proposer.h)."""

    def __init__(
        self,
        *,
        max_match: int,
        max_factor: float,
        min_probability: float,
        max_cached_texts: int,
    ) -> None:
        """Tokens of the longest match that is looked for; drafts for each token of a match; the
        least probability of a draft, by votes; outputs that are kept."""

class Watermark:
    """Marks in texts, of the owner of `key` (cc/sampling/watermark/watermark.h)."""

    def __init__(self, key: int, *, context_tokens: int = 4) -> None:
        """A mark depends on `context_tokens` tokens in front of its own.

        Raises:
            ValueError: that is less than 1.
        """

    def numbers_of(self, token_ids: list[int]) -> list[float]:
        """Numbers in (0, 1) of a text's tokens, uniform if it does not bear the mark, larger if it
        does; without its first tokens and those behind a context that occurred before."""

class ModelRunner:
    """An executor with batch state and sampling; for one engine. Keeps its executor alive."""

    def __init__(
        self,
        executor: NativeExecutor | DeviceExecutor | PythonExecutor,
        limits: RunnerLimits,
        *,
        ngram_sizes: tuple[int, int] | None = None,
        suffix_options: SuffixProposerOptions | None = None,
        draft_executor: NativeExecutor | DeviceExecutor | None = None,
        draft_vocab_size: int = 0,
        draft_states_width: int = 0,
        draft_heads: int = 0,
        draft_mask_token_id: int | None = None,
        draft_block: bool = False,
        draft_media_width: int = 0,
        draft_grid_positions: bool = False,
        draft_token_ids: list[int] = [],  # noqa: B006
        encoders: Sequence[
            tuple[NativeExecutor | DeviceExecutor | PythonExecutor, MediaEncoderOptions]
        ] = (),
        text_rows: bool = False,
        item_ends: bool = False,
        encoder_ends: bool = False,
        adapters: AdapterStore | None = None,
        stage: Stage | None = None,
        page_segment: PageSegment | None = None,
        world: World | None = None,
        watermark: Watermark | None = None,
    ) -> None:
        """`ngram_sizes`: drafts are what followed the last tokens where the request's own text had
        them before; least and most tokens that match. `suffix_options`: also those of earlier
        requests. `draft_executor`: a smaller model, which has
        `executor` as its host, guesses; the last of `limits.kv_groups` are its own, and it knows
        `draft_vocab_size` tokens. All None: no drafts. A draft head reads states of this many
        elements, not 0, the output `draft_states` of both programs; if the model takes media also
        their embeddings, of `draft_media_width` elements, and if it has `draft_grid_positions`
        positions of several dimensions; `draft_token_ids`: the model's id of each token that it
        knows, empty if they are the same. `encoders`: of media, as
        `MediaItem`s count them; with `text_rows`, `item_ends` and `encoder_ends` the program of
        `executor` reads these arrays of a step (cc/runner/media/media_embeddings.h). `adapters`:
        those that requests may name, if `limits.max_adapters` is not 0. `stage`: of `executor`, if
        its layers are the last of several stages. `page_segment`: to copy pages of the other ranks,
        which have all joined it; None: they are not copied. `world`: of the executor; None: no
        other ranks. `watermark`: of what it draws."""
    @property
    def limits(self) -> RunnerLimits: ...
    @property
    def num_encoded_media(self) -> int:
        """Media items that were encoded since the beginning."""
    def set_profiling(self, on: bool) -> None:
        """Turning it on resets the times; only while no request runs."""
    def profile(self, *, decode: bool) -> StepProfile:
        """Of steps with one token of each request, or of the others; only while none runs."""

class SamplingParams:
    """cc/step/sampling_params.h, whose `Visit` lists the fields; ranges are checked by
    `Engine.submit`."""

    fields: tuple[tuple[str, str, str, str], ...]
    """(name, kind, "", help) of each field."""
    def __init__(self, **fields: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def to_wire(self) -> tuple[Any, ...]:
        """A number of the schema and the fields' values in order, as plain data that msgspec
        encodes: cc/bindings/wire.h."""
    @staticmethod
    def from_wire(wire: Sequence[Any]) -> SamplingParams:
        """Raises TypeError for what `to_wire` cannot have made."""

class TokenLogprobs:
    """One position's log probabilities under the unmodified model distribution, or what
    `SamplingParams.logprobs_mode` says."""

    @property
    def token_id(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def rank(self) -> int:
        """1 = the most likely token."""
    @property
    def top(self) -> list[tuple[int, float]]:
        """The most likely first, or `SamplingParams.logprob_token_ids`."""
    def __getstate__(self) -> tuple[int, float, int, list[tuple[int, float]]]:
        """For copies and `pickle`."""
    def __setstate__(self, state: tuple[int, float, int, list[tuple[int, float]]]) -> None: ...

class MediaItem:
    """`num_tokens` tokens from `first_token` on that stand for `features` [rows, channels]:
    cc/step/media_item.h. Requests that get the same object share the features.

    `positions` of a model with M-RoPE: of the rows, [rows, 3], of the tokens, [num_tokens, 3], and
    of the token behind the item. Behind each `row_tokens` embeddings, if not 0, is a token that
    keeps its own, which counts among `num_tokens`. `placement` [num_tokens] has the embedding of
    each token, as the encoder counts them, or -1 for that of ends of rows; None: all in order.
    With `shares` both are [num_tokens, n]: a token is the sum of n embeddings times their shares.
    `encoder` is the number of the runner's encoder that reads the features.
    """

    def __init__(
        self,
        content_id: str,
        first_token: int,
        num_tokens: int,
        features: NDArray[np.float32] | None = None,
        positions: tuple[NDArray[np.int32], NDArray[np.int32], int] | None = None,
        row_tokens: int = 0,
        placement: NDArray[np.int32] | None = None,
        shares: NDArray[np.float32] | None = None,
        encoder: int = 0,
    ) -> None: ...

class InputChunk:
    """Input that is appended to a request: cc/scheduler/input_chunk.h. `part` says what follows;
    items of `media` count from the chunk's first token."""

    def __init__(
        self,
        token_ids: Sequence[int],
        *,
        part: Literal["more", "turn", "last"] = "last",
        media: Sequence[MediaItem] = (),
    ) -> None:
        """Raises StatusError for another `part`."""

class TokenMatcher:
    """A matcher of cc/grammar; keeps to `engine.token_matcher.TokenMatcher`."""

    def fill_mask(self, mask: NDArray[np.uint32]) -> None:
        """Raises StatusError if the mask is not as long as the vocabulary."""
    def accept(self, token_id: int) -> bool: ...
    def rollback(self, num_tokens: int) -> None: ...
    def forced(self, most: int) -> list[int]: ...

class MatcherFactory:
    """Makes token matchers; in a `Request` without a call into Python."""

    def __call__(self) -> TokenMatcher: ...
    def with_reasoning(
        self, openers: Sequence[int], closers: Sequence[int], begins_within: bool
    ) -> MatcherFactory:
        """cc/grammar/reasoning_matcher.h."""

def transcript_matchers(
    vocab_size: int,
    end: int,
    suppressed: Sequence[int],
    suppressed_first: Sequence[int],
    timestamp_begin: int,
    max_first_timestamp: int,
) -> MatcherFactory:
    """cc/grammar/transcript_matcher.h. Raises StatusError for tokens outside the vocabulary."""

class SchemaCompiler:
    """cc/grammar/schema_compiler.h."""

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        eos_token_ids: Sequence[int],
        tokenize: Callable[[bytes], Sequence[int]],
    ) -> None:
        """Raises StatusError if the vocabulary has no token that ends an output."""
    def compile(self, schema: str) -> MatcherFactory:
        """Raises StatusError for text that is no schema. The GIL is free meanwhile."""

class Request:
    """cc/step/request.h, whose `Visit` lists the fields; `Engine.submit` takes it.

    `new_token_matcher` makes what constrains the output (cc/bindings/python_matcher.h). Neither
    it nor the features of `media` are in `to_wire`.
    """

    def __init__(self, **fields: Any) -> None: ...
    def to_wire(self) -> tuple[Any, ...]: ...
    @staticmethod
    def from_wire(wire: Sequence[Any]) -> Request: ...

class RequestOutput:
    """News of one request since its last output: cc/engine/request_output.h."""

    @property
    def request_id(self) -> int: ...
    @property
    def new_token_ids(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[TokenLogprobs] | None: ...
    @property
    def prompt_logprobs(self) -> list[TokenLogprobs] | None:
        """Entry 0 belongs to prompt token 1."""
    @property
    def turn_finished(self) -> Literal["stop", "length"] | None:
        """A turn of a request with streaming input is over."""
    @property
    def finish_reason(self) -> Literal["stop", "length", "abort", "error"] | None: ...
    @property
    def stop_token_id(self) -> int | None:
        """The client's stop token that ended it; None for an end-of-sequence token."""
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def pooled(self) -> NDArray[np.float32] | None: ...
    @property
    def kv_transfer_params(self) -> dict[str, str]:
        """With `finish_reason`: what the KV connector gives to another engine."""
    @property
    def error_code(self) -> str | None: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def error_retry_after_s(self) -> int:
        """Seconds after which a retry makes sense; 0 = not known."""
    @property
    def num_evicted_tokens(self) -> int: ...
    @property
    def num_draft_steps(self) -> int: ...
    @property
    def num_draft_tokens(self) -> int: ...
    @property
    def num_accepted_draft_tokens(self) -> int: ...
    @property
    def weight_versions(self) -> list[tuple[int, str]]: ...
    @property
    def routed_experts(self) -> NDArray[np.uint16]:
        """With `finish_reason`: of all tokens but the last, layer after layer; else empty."""
    @property
    def queued_s(self) -> float: ...
    @property
    def prefill_s(self) -> float: ...
    @property
    def decode_s(self) -> float: ...

def outputs_from_wire(wire: bytes) -> list[RequestOutput]:
    """What `EngineClient.poll_wire` returned in another process: cc/engine/output_codec.h.

    Raises:
        StatusError: INVALID_ARGUMENT for bytes that it cannot have returned.
    """

def output_schema() -> str:
    """The fields and the format of outputs; equal in processes that understand each other."""

class KvTierOptions:
    """cc/engine/kv_tier_options.h."""

    def __init__(
        self,
        *,
        host_bytes: int = 0,
        disk_path: str = "",
        disk_bytes: int = 0,
        policy: str = "lru",
        connector_folder: str = "",
        connector_bytes: int = 17179869184,
        shared_memory_bytes: int = 0,
        transfer_listen: str = "",
        transfer_peers: Sequence[str] = [],
        transfer_secret: str = "",
        transfer_timeout_ms: int = 10000,
        num_step_threads: int = 0,
        fingerprint: Callable[[], str] | None = None,
    ) -> None: ...

class EngineOptions:
    """cc/engine/engine_options.h."""

    def __init__(
        self,
        *,
        max_num_scheduled_tokens: int = 0,
        max_num_seqs: int = 0,
        long_prefill_token_threshold: int = 0,
        max_waiting_requests: int = 1024,
        scheduling_policy: str = "fcfs",
        enable_prefix_caching: bool = True,
        prefix_caching_hash: str = "xxh3-128",
        max_in_flight_steps: int = 1,
        check_integrity: bool = False,
        max_waiting_tokens: int = 0,
        max_waiting_per_tenant: int = 0,
        max_queue_time_ms: int = 0,
        tenant_weights: Mapping[str, int] = ...,
        max_partial_prefills: int = 0,
        max_long_partial_prefills: int = 0,
        prefix_cache_eviction: str = "adaptive",
        output_interval_us: int = 0,
        max_pinned_blocks: int = 0,
        max_kv_events: int = 0,
        kv_tiers: KvTierOptions | None = None,
        max_step_us: int | None = None,
        kv_block_age_sample: float = 0.0,
    ) -> None: ...

class DurationHistogram:
    """How often durations were how long: cc/base/duration_histogram.h."""

    bounds_s: ClassVar[tuple[float, ...]]
    """Upper bounds of the buckets in seconds, each included."""
    @property
    def counts(self) -> list[int]:
        """Of each bucket, and of what exceeds all bounds; empty if nothing is measured."""
    @property
    def sum_s(self) -> float: ...

class EngineStats(EngineSnapshot):
    """cc/engine/engine_stats.h, whose `Visit` lists the statistics."""

    fields: ClassVar[Sequence[tuple[str, str, str, str]]]

    def __getattr__(self, name: str) -> Any: ...
    def to_wire(self) -> tuple[Any, ...]: ...
    @staticmethod
    def from_wire(wire: Sequence[Any]) -> EngineStats: ...

class EngineClient:
    """One of several clients of an engine, with request ids and outputs of its own:
    cc/engine/engine_client.h. Dropping the object closes it."""

    def submit(self, request: Request) -> None:
        """Raises StatusError for a refusal."""
    def check_room(self) -> None:
        """Raises the StatusError with which `submit` would refuse any request now."""
    def abort(self, request_id: int) -> None: ...
    def release(self, request_id: int) -> None: ...
    def extend(self, request_id: int, chunk: InputChunk) -> None:
        """See `Engine.extend`."""
    def poll(self) -> list[RequestOutput]: ...
    def poll_wire(self) -> bytes:
        """`poll`, for `outputs_from_wire` in another process."""
    def wait(self, timeout_s: float) -> list[RequestOutput]: ...
    def output_fd(self) -> int: ...
    def close(self) -> None:
        """Aborts its requests. Idempotent."""

class Engine:
    """Scheduler, KV cache and loop around a runner, on a thread of its own: cc/engine/engine.h.

    `log(severity, line)` is called from the engine's thread; severity is "debug", "info",
    "warning" or "error".
    """

    def __init__(
        self,
        runner: ModelRunner,
        options: EngineOptions,
        *,
        log: Callable[[str, str], None] | None = None,
    ) -> None: ...
    @overload
    def submit(self, request: Request) -> None: ...
    @overload
    def submit(
        self,
        request_id: int,
        prompt_token_ids: Sequence[int] | NDArray[np.int32],
        sampling: SamplingParams | None,
        **fields: Any,
    ) -> None:
        """`sampling` None = a pooling request; `fields` are further ones of `Request`. Raises
        StatusError for a refusal, TypeError for a field that does not exist or fit."""

    def abort(self, request_id: int) -> None:
        """Unknown and finished requests are ignored."""

    def poll(self) -> list[RequestOutput]:
        """Outputs that wait to be read; never blocks."""

    def wait(self, timeout_s: float) -> list[RequestOutput]: ...
    def output_fd(self) -> int:
        """Readable while outputs wait; `poll` clears it."""

    def new_client(self) -> EngineClient:
        """The engine's own methods are those of a client that it opens itself."""
    def stats(self) -> EngineStats: ...
    def drain(self) -> None:
        """Refuses new requests with UNAVAILABLE and finishes the rest; returns at once."""

    def wait_idle(self, timeout_s: float) -> bool: ...
    def shutdown(self) -> None:
        """Aborts all, joins the thread."""

    def save_session(self, path: str, token_ids: Sequence[int], *, cache_salt: str = "") -> int:
        """Writes the cached KV of the tokens to a file; returns of how many leading ones."""

    def restore_session(self, path: str, *, cache_salt: str = "") -> tuple[list[int], int]:
        """The saved tokens, and of how many leading ones the KV is in the cache now."""

    def release(self, request_id: int) -> None:
        """Lets a request start that was submitted with `starts_held`."""

    def extend(self, request_id: int, chunk: InputChunk) -> None:
        """Appends input to a request with `streaming_input`. Raises StatusError for a refusal."""

    def pause(self, mode: str = "keep") -> None:
        """Plans no step ("keep"), starts no request ("wait"), or ends all ("abort"), until
        `resume`."""

    def wait_paused(self, timeout_s: float) -> bool:
        """Waits until the pause is complete; False on timeout, and if there is none."""

    def resume(self) -> None: ...
    def sleep(self, *, keep_kv: bool = False, timeout_s: float = 60.0) -> None:
        """Frees the memory of the weights, and of KV unless it is kept, until `wake`."""

    def wake(self, *, timeout_s: float = 60.0) -> None:
        """Loads the weights again; nothing happens if the engine is awake."""

    def start_profile(self, path: str, *, max_steps: int = 0, max_seconds: int = 60) -> None:
        """Records steps from now on, at most so many (0 = no limit), for at most so long."""

    def stop_profile(self) -> dict[str, Any]:
        """Writes them to `path` in Chrome's trace format; returns `path`, the numbers of events and
        steps, and `complete`, which is false if a bound ended the profile."""

    def is_sleeping(self) -> bool: ...
    def update_weights(
        self,
        programs: Mapping[str, str],
        *,
        timeout_s: float = 60.0,
        over: bool = False,
        version: str | None = None,
    ) -> None:
        """Goes on with other weights: for "model", "encoder.<number>" or "draft" the text of
        its program with other locations. `over`: those at new places are written over the old ones,
        and the others stay; else all are loaded beside the old ones. `version`: as
        `set_weight_version`. Nothing changes if it raises StatusError."""

    def set_weight_version(self, version: str, *, timeout_s: float = 60.0) -> None:
        """Names the weights as they are, for tokens from now on."""

    def count_adapters(self, *, loaded: int = 0, evicted: int = 0) -> None:
        """Adds to the statistics of adapters."""
    def new_adapter_id(self) -> int:
        """An id for adapter weights about to be loaded; `Request.adapter` names it."""
    def pin_prefix(self, token_ids: Sequence[int], *, cache_salt: str = "") -> tuple[int, int]:
        """Keeps cached KV of leading tokens; returns the pin's id and of how many."""

    def unpin_prefix(self, pin_id: int) -> bool:
        """False if there is no such pin."""

    def kv_events(self, sequence: int = 1, max_events: int = 2**64 - 1) -> dict[str, Any]:
        """What came to the prefix cache and went since event `sequence`: `events` (dicts with the
        fields of cc/kv_cache/event_log.h), `next` to pass the next time, how many were `dropped`
        meanwhile, and `log_id`, which another run of the engine does not have."""

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forgets all cached prefixes; False, and nothing is forgotten, while requests run, unless
        they are preempted for it."""

    def reset_encoder_cache(self) -> None:
        """Forgets the embeddings of media that no running request needs."""

class SimDevice:
    """DeviceSpec of cc/sim/cost_model.h; checked when a simulator is made."""

    peak_flops: int
    bandwidth_bytes: int
    compute_efficiency_permille: int
    bandwidth_efficiency_permille: int
    step_overhead_ns: int

class SimModel:
    """ModelShape of cc/sim/cost_model.h."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    intermediate_size: int
    num_mlp_matrices: int
    vocab_size: int
    weight_bytes: int
    kv_bits: int
    @property
    def num_weights(self) -> int: ...
    @property
    def kv_token_bytes(self) -> int: ...
    def validate(self) -> None:
        """Raises StatusError where a field is out of range."""

class SimScheduler:
    """cc/scheduler/scheduler_options.h, as far as simulations set it."""

    max_num_tokens: int
    max_num_seqs: int
    max_num_logits_rows: int
    max_model_len: int
    long_prefill_token_threshold: int
    max_waiting_requests: int
    policy: str
    num_blocks: int
    block_size: int
    enable_prefix_caching: bool
    eviction: str
    kv_groups: list[tuple[str, int]]
    """(kind, tokens of its window or chunk, else 0): cc/kv_cache/kv_group_options.h"""

class SimLengths:
    """cc/sim/length_distribution.h"""

    distribution: str
    mean_tokens: int
    spread_permille: int
    max_tokens: int

class SyntheticLoad:
    """cc/sim/synthetic_workload.h"""

    seed: int
    num_requests: int
    arrival_process: str
    mean_gap_ns: int
    mean_burst: int
    concurrency: int
    prompt: SimLengths
    output: SimLengths
    num_prefixes: int
    prefix_tokens: int
    mean_turns: int
    mean_think_ns: int

class TraceReplay:
    """TraceOptions of cc/sim/trace_workload.h"""

    concurrency: int
    think_ns: int

class SimulatorOptions:
    """cc/sim/simulator.h"""

    def __init__(
        self,
        *,
        num_engines: int,
        routing: str,
        scheduler: SimScheduler,
        device: SimDevice,
        model: SimModel,
        max_step_us: int | None = 0,
    ) -> None:
        """Raises StatusError where a field is out of range."""

def best_prefix_hits(
    trace: list[tuple[int, int, list[tuple[int, int]], int, int]],
    *,
    num_blocks: int,
    block_size: int,
) -> tuple[int, int]:
    """(prompt tokens, most that any eviction order could hit): cc/sim/offline_optimum.h."""

class Simulator:
    """cc/sim/simulator.h"""

    @staticmethod
    def synthetic(options: SimulatorOptions, load: SyntheticLoad) -> Simulator:
        """Raises StatusError where a field is out of range."""

    @staticmethod
    def replay(
        options: SimulatorOptions,
        trace: list[tuple[int, int, list[tuple[int, int]], int, int]],
        how: TraceReplay,
    ) -> Simulator:
        """`trace`: (time in ns, session or 0, [(content, tokens)], prompt and output tokens)."""

    def run(self, num_requests: int) -> None:
        """Goes on until so many more requests ended; without the GIL."""

    @property
    def done(self) -> bool: ...
    @property
    def num_ended(self) -> int: ...
    def report(self) -> dict[str, Any]:
        """cc/sim/report.h; histograms and the series as dictionaries."""

    def report_text(self) -> str:
        """Report::ToText()"""

class Router:
    """cc/router/router.h. Belongs to one thread."""

    def __init__(
        self,
        *,
        policy: str,
        num_engines: int,
        block_size: int = 16,
        hash_algorithm: str = "xxh3-128",
        max_prefix_blocks: int = 2**20,
    ) -> None:
        """Raises StatusError if an option is out of range."""

    def route(
        self, token_ids: Sequence[int] = (), *, cache_salt: str = "", session: str = ""
    ) -> int | None:
        """The engine for a request, which counts as its own until `finish`. None: no engine is
        available."""

    def finish(self, engine: int) -> None: ...
    def add_requests(self, engine: int, count: int) -> None:
        """Requests of `engine` that `route` did not choose it for; negative: so many have ended."""

    def observe(
        self,
        engine: int,
        type: str,
        hashes: Sequence[bytes] = (),
        *,
        group: int = 0,
        medium: str = "pool",
        block_size: int = 0,
    ) -> None:
        """A KV event, as `Engine.kv_events` returns it. Raises StatusError for an unknown type, or
        a hash that has neither 16 nor 32 bytes."""

    def forget(self, engine: int) -> None: ...
    def set_available(self, engine: int, available: bool) -> None: ...
    def num_requests(self, engine: int) -> int:
        """Unfinished requests of `engine`."""

    @property
    def uses_prefixes(self) -> bool: ...
    def stats(self) -> dict[str, int]:
        """RouterStats"""

# --- limits of the machine ------------------------------------------------------------------------

def present_peaks() -> list[tuple[str, str, str]]:
    """(instruction set, number format, where operands are) of each multiply-add that this CPU has:
    cc/device/machine_limits.h."""

def measure_peak(peak: tuple[str, str, str], *, threads: int = 0, seconds: float = 0.1) -> float:
    """Operations per second; 0 threads are one for each core. StatusError where it is not one of
    `present_peaks()`."""

def measure_read_bandwidth(size_bytes: int, *, threads: int = 0, seconds: float = 0.1) -> float:
    """Bytes per second of reading a block of that size again and again."""

def memory_placement(*, ranks: int = 1) -> str:
    """Where weights and KV cache of rank 0 would lie; empty if there is nothing to place."""

def cpu_share(index: int, count: int) -> list[int]:
    """The CPUs of one of `count` equal shares of those that this thread may use: whole cores, in
    order of sockets. Empty if there are fewer cores than shares."""

def data_caches() -> list[tuple[int, int, int]]:
    """(level, bytes, logical CPUs that share it) of the first CPU; empty if unknown."""

# --- weights --------------------------------------------------------------------------------------

def dequantize_blocks(dtype: str, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    """Writes the values of whole blocks of a format that is converted
    (cc/ops/quantized/converted_blocks.h) to `out`. StatusError if their numbers do not fit."""
