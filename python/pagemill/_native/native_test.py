"""The compiled extension through its one door."""

from __future__ import annotations

import ast
import gc
import importlib
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pagemill
from pagemill import _native
from pagemill._native import _core

VOCAB = 17

PROGRAM = """pagemill-program 3
file 0 @
group full full
cache kv0 full kv kv 1,2
weight table f32 3,2 0 0
weight norm f32 2 0 24
input token_ids i32 tokens
input logits_rows i32 logits_rows
value x f32 tokens,2
value s f32 tokens,2
value n f32 tokens,2
value out f32 logits_rows,2
op embedding token_ids,table -> x
op add x,x -> s
op rms_norm s,norm -> n eps=1e-05
op select_rows s,logits_rows -> out
output logits out
constants 32
"""
TABLE = np.array([[1, 2], [3, 4], [5, 6], [1, 1]], dtype="<f4")
TEXT = PROGRAM + TABLE.tobytes().hex() + "\n"


def next_token(token: int, position: int) -> int:
    return (5 * token + position) % VOCAB


def fake_model(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    """Logits that prefer `next_token`."""
    rows = batch["logits_rows"]
    logits = np.zeros((len(rows), VOCAB), dtype=np.float32)
    for at, row in enumerate(rows):
        logits[at, next_token(int(batch["token_ids"][row]), int(batch["positions"][row]))] = 9
    return {"logits": logits}


def limits(**changes: Any) -> _native.RunnerLimits:
    fields: dict[str, Any] = {
        "max_num_tokens": 32,
        "max_num_seqs": 4,
        "max_num_logits_rows": 32,
        "max_model_len": 64,
        "vocab_size": VOCAB,
        "num_blocks": 20,
        "block_size": 8,
    }
    return _native.RunnerLimits(**(fields | changes))


MakeEngine = Callable[..., _native.Engine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    engines: list[_native.Engine] = []

    def make(model: Callable[[dict[str, Any]], Any] = fake_model, **changes: Any) -> _native.Engine:
        runner = _native.ModelRunner(_native.PythonExecutor(model), limits(**changes))
        engines.append(_native.Engine(runner, _native.EngineOptions(check_integrity=True)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.shutdown()


def collect(engine: _native.Engine, request_id: int) -> tuple[list[int], _native.RequestOutput]:
    tokens: list[int] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for output in engine.wait(0.5):
            assert output.request_id == request_id
            tokens += output.new_token_ids
            if output.finish_reason is not None:
                return tokens, output
    raise AssertionError("the request did not finish")


def greedy(**fields: Any) -> _native.SamplingParams:
    return _native.SamplingParams(temperature=0.0, **fields)


# --- the door -------------------------------------------------------------------------------------


def declared_names() -> dict[str, set[str]]:
    """Class (or "" for the module) -> public names in the stub."""
    tree = ast.parse(Path(__file__).with_name("_core.pyi").read_text(encoding="utf-8"))
    names: dict[str, set[str]] = {"": set()}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[""].add(node.target.id)
        elif isinstance(node, ast.FunctionDef):
            names[""].add(node.name)
        elif isinstance(node, ast.ClassDef):
            names[""].add(node.name)
            members = (m for m in node.body if isinstance(m, ast.FunctionDef))
            names[node.name] = {m.name for m in members if not m.name.startswith("__")}
            fields = (m.target for m in node.body if isinstance(m, ast.AnnAssign))
            names[node.name] |= {field.id for field in fields if isinstance(field, ast.Name)}
    return names


def test_stub_declares_what_the_extension_has() -> None:
    declared = declared_names()
    assert {name for name in dir(_core) if not name.startswith("_")} == declared.pop("")
    for name, members in declared.items():
        if name == "StatusError":
            continue  # its two fields are attributes of instances
        found = {m for m in vars(getattr(_core, name)) if not m.startswith("_")}
        if "fields" in members:  # what the table lists, the stub does not repeat
            listed = {row[0] for row in getattr(_core, name).fields}
            assert listed <= found, name
            found -= listed
        assert found == members, name


def test_the_door_exports_everything_but_the_version() -> None:
    assert set(_native.__all__) == declared_names()[""] - {"version"}


def test_a_version_mismatch_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _core.version == pagemill.__version__
    monkeypatch.setattr(pagemill, "__version__", "9.9.9")
    with pytest.raises(ImportError, match=r"9\.9\.9 found a compiled extension of version"):
        importlib.reload(_native)


def test_a_missing_extension_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_native, "_core")
    monkeypatch.setitem(sys.modules, "pagemill._native._core", None)
    with pytest.raises(ImportError, match="bazelw"):
        importlib.reload(_native)


# --- programs -------------------------------------------------------------------------------------


def test_status_error_has_code_and_message() -> None:
    with pytest.raises(_native.StatusError) as caught:
        _native.rewrite_program("nonsense")
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "line 1" in caught.value.message
    assert str(caught.value) == f"INVALID_ARGUMENT: {caught.value.message}"


def test_rewrite_fuses() -> None:
    assert "op add_rms_norm x,x,norm -> n,s eps=1e-05\n" in _native.rewrite_program(TEXT)


def test_activation_dtype() -> None:
    assert _native.ExecutorOptions().activation_dtype == "bf16"
    for name in ("f32", "bf16", "int8"):
        assert _native.ExecutorOptions(activation_dtype=name).activation_dtype == name
    with pytest.raises(_native.StatusError, match="'f64'; it must be f32, bf16 or int8"):
        _native.ExecutorOptions(activation_dtype="f64")  # type: ignore[arg-type]


def test_activation_type() -> None:
    assert _native.ExecutorOptions().activation_type == "f32"
    options = _native.ExecutorOptions(activation_type="bf16", max_num_tokens=7)
    assert options.activation_type == "bf16"
    changes = {
        " f32 tokens": " act tokens",
        "value out f32 logits_rows,2": "value r act logits_rows,2\nvalue out f32 logits_rows,3",
        "-> out\n": "-> r\nop linear r,table -> out\n",
    }
    text = TEXT
    for old, new in changes.items():
        text = text.replace(old, new)
    choices = _native.kernel_choices(text, options)
    assert choices[0] == ("embedding", "i32[7] f32[3,2] -> bf16[7,2]", "reference", 1)
    wide = _native.plan_memory(text, _native.ExecutorOptions(max_num_tokens=7))
    assert _native.plan_memory(text, options).activation_bytes < wide.activation_bytes
    with pytest.raises(_native.StatusError, match="'int8'; it must be f32, bf16 or f16"):
        _native.ExecutorOptions(activation_type="int8")  # type: ignore[arg-type]


def test_plan_and_choices() -> None:
    options = _native.ExecutorOptions(num_blocks=5, max_num_tokens=7, kernel_filter="reference")
    plan = _native.plan_memory(TEXT, options)
    assert plan.weights_bytes == 32
    assert plan.total_bytes == sum(
        (
            plan.weights_bytes,
            plan.activation_bytes,
            plan.workspace_bytes,
            plan.output_bytes,
            plan.kv_bytes,
        )
    )
    assert "weights" in str(plan)
    choices = _native.kernel_choices(TEXT, options)
    assert choices[0] == ("embedding", "i32[7] f32[3,2] -> f32[7,2]", "reference", 1)
    assert _native.detect_capabilities().cores >= 1


def test_options_are_checked() -> None:
    with pytest.raises(_native.StatusError, match="block_size must be from 1"):
        _native.ExecutorOptions(block_size=0)
    wrong = "kv_cache_dtype is 'int3'; it must be bf16, f32, fp8, int4, int8 or k8v4"
    with pytest.raises(_native.StatusError, match=wrong):
        _native.ExecutorOptions(kv_cache_dtype="int3")  # type: ignore[arg-type]
    known = 'policy "nonesuch" is not one of fair, fcfs, priority'
    with pytest.raises(_native.StatusError, match=known):
        _native.EngineOptions(scheduling_policy="nonesuch")


# --- executors ------------------------------------------------------------------------------------


def step(**changes: Any) -> dict[str, Any]:
    arrays = {
        "token_ids": [2, 1],
        "positions": [0, 1],
        "query_start": [0, 2],
        "seq_lens": [2],
        "logits_rows": [1, 0],
        "media_rows": [],
    }
    table = {"slot_mapping": [16, 17], "block_table": [[1]]}

    def changed(fields: dict[str, Any]) -> dict[str, Any]:
        return {
            name: np.array(changes.get(name, value), dtype=np.int32)
            for name, value in fields.items()
        }

    numbers = {"block_size": changes.get("block_size", 16), "num_common_blocks": 0}
    numbers |= {"recent_states": 0}
    return changed(arrays) | {"kv": [changed(table) | numbers][: changes.get("tables", 1)]}


def native_executor() -> _native.NativeExecutor:
    return _native.NativeExecutor(TEXT, _native.ExecutorOptions(num_blocks=3, num_threads=1))


def test_native_executor_runs_a_step() -> None:
    outputs = native_executor()(step())
    assert list(outputs) == ["logits"]
    np.testing.assert_array_equal(outputs["logits"], [[6, 8], [10, 12]])
    assert native_executor().table_block_sizes == [16]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": [2, 3]}, "token_ids must be from 0 to 2"),
        ({"token_ids": [-1, 0]}, "token_ids must be from 0 to 2"),
        ({"positions": [0]}, "positions must have 2 rows, got 1"),
        ({"slot_mapping": [16, 48]}, "slot_mapping must be from 0 to 47, got 48"),
        ({"query_start": [0, 1]}, "query_start must ascend"),
        ({"seq_lens": [17]}, "seq_lens must be from 1 to 16, got 17"),
        ({"seq_lens": [1]}, "more tokens than its seq_lens"),
        ({"block_table": [[3]]}, "block_table must be from 0 to 2"),
        ({"block_table": [[1], [2]]}, "block_table must have 1 rows, got 2"),
        ({"block_size": 8}, "block table 0 has blocks of 16 tokens, got 8"),
        ({"tables": 0}, "an entry for each of 1 block tables, got 0"),
        ({"positions": [[0, 1]]}, "positions has the wrong number of dimensions"),
        ({"logits_rows": [2]}, "logits_rows must be from 0 to 1"),
        ({"media_rows": [2]}, "media_rows must be from 0 to 1"),
    ],
)
def test_native_executor_checks_the_batch(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(_native.StatusError, match=message):
        native_executor()(step(**changes))


def test_a_profile_has_each_op_and_the_rest_of_a_step() -> None:
    fitting = limits(num_blocks=3, block_size=16, vocab_size=2)
    runner = _native.ModelRunner(native_executor(), fitting)
    engine = _native.Engine(runner, _native.EngineOptions())
    try:
        runner.set_profiling(True)
        engine.submit(1, [1, 0, 1], greedy(max_tokens=4, ignore_eos=True))
        collect(engine, 1)
        prompt, decode = runner.profile(decode=False), runner.profile(decode=True)
        assert (prompt.steps, decode.steps) == (1, 3)
        names = {op.op for op in decode.ops}
        assert names == {"embedding", "add", "rms_norm", "select_rows"}
        assert all(op.calls == 3 and op.bytes > 0 for op in decode.ops)
        assert decode.model_s >= sum(op.seconds for op in decode.ops) > 0
        assert min(decode.batch_s, decode.sampling_s, decode.between_s) > 0
        runner.set_profiling(True)
        assert runner.profile(decode=True).ops == []
    finally:
        engine.shutdown()


def test_runner_limits_must_fit_the_executor() -> None:
    with pytest.raises(_native.StatusError, match=r"num_blocks = 20 exceeds the executor's 3"):
        _native.ModelRunner(native_executor(), limits(block_size=16))
    with pytest.raises(TypeError, match="NativeExecutor, DeviceExecutor or PythonExecutor"):
        _native.ModelRunner(object(), limits())  # type: ignore[arg-type]


# --- the engine -----------------------------------------------------------------------------------


@pytest.mark.parametrize("as_array", [False, True])
def test_engine_generates(make_engine: MakeEngine, as_array: bool) -> None:
    engine = make_engine()
    prompt = [3, 1, 4]
    sent = np.array(prompt, dtype=np.int32) if as_array else prompt
    engine.submit(7, sent, greedy(max_tokens=5, logprobs=2, prompt_logprobs=0))
    tokens, last = collect(engine, 7)
    expected = [next_token(4, 2)]
    while len(expected) < 5:
        expected.append(next_token(expected[-1], 2 + len(expected)))
    assert tokens == expected
    assert last.finish_reason == "length"
    assert last.error_code is None
    assert last.error_message is None
    assert last.pooled is None
    assert last.decode_s >= 0
    assert engine.stats().finished_length == 1


def test_logprobs_cross_the_bindings(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(1, [3, 1, 4], greedy(max_tokens=1, logprobs=2, prompt_logprobs=0))
    _, last = collect(engine, 1)
    assert last.logprobs is not None
    assert last.prompt_logprobs is not None
    assert [entry.token_id for entry in last.prompt_logprobs] == [1, 4]
    best = last.logprobs[0]
    assert best.rank == 1
    assert best.top[0] == (best.token_id, best.logprob)
    assert best.logprob == pytest.approx(9 - np.log(np.exp(9) + VOCAB - 1), abs=1e-5)


def test_native_executor_in_an_engine() -> None:
    executor = _native.NativeExecutor(
        TEXT, _native.ExecutorOptions(num_blocks=20, block_size=8, num_threads=1)
    )
    engine = _native.Engine(
        _native.ModelRunner(executor, limits(vocab_size=2)), _native.EngineOptions()
    )
    engine.submit(1, [0, 1], greedy(max_tokens=3))
    assert collect(engine, 1)[0] == [1, 1, 1]  # the second column is always the larger
    engine.shutdown()


def test_pooling(make_engine: MakeEngine) -> None:
    def pool(batch: dict[str, Any]) -> dict[str, np.ndarray]:
        return {"pooled": np.array([[n, 0.5] for n in batch["seq_lens"]], dtype=np.float32)}

    engine = make_engine(pool, pooling=True, chunked_prefill=False, prefix_caching=False)
    engine.submit(1, [1, 2, 3], None)
    _, last = collect(engine, 1)
    assert last.pooled is not None
    np.testing.assert_array_equal(last.pooled, np.array([3, 0.5], dtype=np.float32))
    assert last.finish_reason == "stop"


def test_rows_of_tokens(make_engine: MakeEngine) -> None:
    def pool(batch: dict[str, Any]) -> dict[str, np.ndarray]:
        rows = [
            [token, kind]
            for token, kind in zip(batch["token_ids"], batch["token_types"], strict=True)
        ]
        return {"pooled": np.array(rows, dtype=np.float32)}

    engine = make_engine(pool, pooling=True, chunked_prefill=False, prefix_caching=False)
    engine.submit(1, [1, 2, 3], None, second_text_start=2)
    _, last = collect(engine, 1)
    assert last.pooled is not None
    np.testing.assert_array_equal(last.pooled, np.array([1, 0, 2, 0, 3, 1], dtype=np.float32))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda batch: 1 / 0, "division by zero"),
        (lambda batch: None, "must return a dict"),
        (lambda batch: {"logits": [1.0]}, "logits as a C-contiguous float32 array"),
        (lambda batch: {"logits": np.zeros((7, VOCAB), np.float32)}, "returned 7 rows of logits"),
        (lambda batch: {"logits": np.zeros((1, VOCAB), np.float64)}, "logits as a C-contiguous"),
        (lambda batch: {"logits": np.zeros(VOCAB, np.float32)}, "of two dimensions"),
        (lambda batch: {}, "this model has no logits"),
        (lambda batch: {"logits": np.full((1, VOCAB), np.nan, np.float32)}, "not finite"),
    ],
)
def test_a_failing_callable_fails_the_request_only(
    make_engine: MakeEngine, model: Callable[[dict[str, Any]], Any], message: str
) -> None:
    broken = True
    engine = make_engine(lambda batch: model(batch) if broken else fake_model(batch))
    engine.submit(1, [3], greedy(max_tokens=2))
    tokens, last = collect(engine, 1)
    assert tokens == []
    assert last.finish_reason == "error"
    assert last.error_code is not None
    assert message in (last.error_message or "")
    broken = False
    engine.submit(2, [3], greedy(max_tokens=2))
    assert collect(engine, 2)[1].finish_reason == "length"


def test_arrays_of_a_step_are_read_only(make_engine: MakeEngine) -> None:
    seen: dict[str, Any] = {}

    def model(batch: dict[str, Any]) -> dict[str, np.ndarray]:
        (table,) = batch.pop("kv")
        for name, value in (batch | table).items():
            seen[name] = value if isinstance(value, int) else (value.dtype, value.flags.writeable)
        return fake_model(batch)

    engine = make_engine(model)
    engine.submit(1, [3, 4], greedy(max_tokens=1))
    collect(engine, 1)
    assert (seen.pop("block_size"), seen.pop("num_common_blocks")) == (8, 0)
    assert seen.pop("recent_states") == 0
    names = {"token_ids", "positions", "query_start", "seq_lens", "logits_rows", "media_rows"}
    assert set(seen) == names | {"slot_mapping", "block_table"}
    assert set(seen.values()) == {(np.dtype(np.int32), False)}


def test_refusals_are_status_errors(make_engine: MakeEngine) -> None:
    engine = make_engine()
    with pytest.raises(_native.StatusError) as caught:
        engine.submit(1, [VOCAB], greedy())
    assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(_native.StatusError, match="top_p"):
        engine.submit(1, [1], greedy(top_p=2.0))
    with pytest.raises(TypeError):
        engine.submit(1, ["a"], greedy())  # type: ignore[list-item]
    engine.drain()
    with pytest.raises(_native.StatusError) as caught:
        engine.submit(1, [1], greedy())
    assert caught.value.code == "UNAVAILABLE"
    assert engine.wait_idle(5)


def test_output_fd_is_readable_while_outputs_wait(make_engine: MakeEngine) -> None:
    engine = make_engine()
    fd = engine.output_fd()
    assert select.select([fd], [], [], 0)[0] == []
    engine.submit(1, [1], greedy(max_tokens=1))
    assert select.select([fd], [], [], 30)[0] == [fd]
    while not any(o.finish_reason for o in engine.poll()):
        time.sleep(0.001)
    assert select.select([fd], [], [], 0)[0] == []


def test_abort_and_wait_do_not_hold_the_gil(make_engine: MakeEngine) -> None:
    release = threading.Event()

    def slow(batch: dict[str, Any]) -> tuple[np.ndarray, None]:
        release.wait(30)
        return fake_model(batch)

    engine = make_engine(slow)
    engine.submit(1, [1], greedy(max_tokens=10))
    waited: list[_native.RequestOutput] = []
    waiter = threading.Thread(target=lambda: waited.extend(engine.wait(0.2)))
    waiter.start()
    engine.abort(1)
    engine.abort(99)
    waiter.join(30)
    assert not waiter.is_alive()
    release.set()
    # An abort that came before the first step is known at once.
    last = waited[-1] if waited else collect(engine, 1)[1]
    assert last.finish_reason == "abort"
    assert engine.reset_prefix_cache() in (True, False)


def test_seeds_use_all_64_bits() -> None:
    assert _native.SamplingParams(seed=2**64 - 1).seed == 2**64 - 1
    with pytest.raises(TypeError):
        _native.SamplingParams(seed=2**64)


class Owner:
    """Keeps an engine whose model and log function are its own methods: a cycle."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        runner = _native.ModelRunner(_native.PythonExecutor(self.model), limits())
        self.engine = _native.Engine(runner, _native.EngineOptions(), log=self.log)

    def model(self, batch: dict[str, Any]) -> dict[str, np.ndarray]:
        return fake_model(batch)

    def log(self, severity: str, line: str) -> None:
        self.lines.append((severity, line))


def test_an_engine_in_a_cycle_is_collected() -> None:
    owner = Owner()
    owner.engine.submit(1, [1], greedy(max_tokens=3))
    collect(owner.engine, 1)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_a_failed_step_is_logged() -> None:
    owner = Owner()
    runner = _native.ModelRunner(_native.PythonExecutor(lambda batch: 1 / 0), limits())
    engine = _native.Engine(runner, _native.EngineOptions(), log=owner.log)
    engine.submit(1, [1], greedy())
    collect(engine, 1)
    engine.shutdown()
    owner.engine.shutdown()
    assert any("division by zero" in line for _, line in owner.lines)


def test_the_best_prefix_hits_of_a_pool() -> None:
    trace = [(0, 0, [(content, 8), (9, 1)], 9, 1) for content in (1, 2, 1)]
    assert _native.best_prefix_hits(trace, num_blocks=5, block_size=4) == (27, 8)
    assert _native.best_prefix_hits(trace, num_blocks=4, block_size=4) == (27, 4)
    with pytest.raises(_native.StatusError, match="request 0 needs 3 blocks"):
        _native.best_prefix_hits(trace, num_blocks=2, block_size=4)


def test_kv_groups_of_a_simulated_engine() -> None:
    scheduler = _native.SimScheduler()
    assert scheduler.kv_groups == [("full", 0)]
    scheduler.kv_groups = [("full", 0), ("sliding_window", 512)]
    assert scheduler.kv_groups == [("full", 0), ("sliding_window", 512)]


def test_fields_are_keywords_and_attributes() -> None:
    params = _native.SamplingParams(top_k=3, logit_bias=[(1, 0.5)], stop_token_ids=[7])
    assert (params.top_k, params.logit_bias, params.stop_token_ids) == (3, [(1, 0.5)], [7])
    assert params.temperature == 1.0
    with pytest.raises(TypeError, match="none of: temperature"):
        _native.SamplingParams(temperatur=1)
    for wrong in ({"top_k": "many"}, {"top_k": 2**31}, {"seed": -1}, {"stop_token_ids": [0.5]}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} has the wrong type"):
            _native.SamplingParams(**wrong)


def test_statistics_are_listed_with_the_families_that_operators_know() -> None:
    families = {row[2]: row[1] for row in _native.EngineStats.fields if row[2]}
    gauges = {name for name, kind in families.items() if kind == "gauge"}
    assert gauges >= {
        *("num_requests_running", "num_requests_waiting", "num_prompt_tokens_waiting"),
        *("estimated_wait_seconds", "kv_blocks_used", "kv_blocks_total"),
        "engine_progress_age_seconds",
    }
    assert families.keys() - gauges >= {
        *("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens"),
        *("external_prefix_cache_queries", "external_prefix_cache_hits", "generation_tokens"),
        *("kv_failed_loads", "kv_failed_transfers", "kv_blocks_loaded", "kv_blocks_stored"),
        *("kv_blocks_demoted", "kv_blocks_evicted", "kv_blocks_dropped", "engine_steps"),
        *("engine_failed_steps", "requests_refused"),
    }
