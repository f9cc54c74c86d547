"""Requests with adapters get what `transformers` makes of the merged weights, whatever is in their
batch; adapters are loaded, replaced and unloaded while the engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill import _native
from pagemill.config import ConfigError
from pagemill.engine.core import EngineCore
from pagemill.engine.outputs import EngineError
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.adapters.engine_adapters import adapters_of
from tests.adapters.random_adapter import Kind, linear_layers, save_adapter, write_adapter
from tests.families.families import make
from tests.parity.engine_model import Model
from tests.parity.greedy import wrong_tokens
from tests.parity.small_engine import generate

TOKENS = 24
_NEAR_TIE = 1e-3  # tests/parity/engine_model.py
KINDS = {
    "all": Kind(rank=4),
    "queries": Kind(rank=17, types=("q_proj", "qkv_proj", "query_key_value"), dtype=torch.bfloat16),
    "root": Kind(rank=8, use_rslora=True, dtype=torch.float16),
    "dora": Kind(rank=3, use_dora=True),
    "bias": Kind(rank=1, lora_bias=True, alpha=0.5),
}
# Biases (Qwen2), windows and norms behind branches (Gemma 3), fused q, k and v one after the other
# (Phi-3) and by head (GPT-NeoX), layers that run several times (Nanbeige).
FAMILIES = ("llama", "qwen2", "gemma3", "phi3", "gpt_neox", "nanbeige")


class Served:
    """A tiny model, its adapters in folders, and a reference for each of them."""

    def __init__(self, path: Path, family: str, kinds: Sequence[str]) -> None:
        self.model = Model(path / "model", make(family, path / "model"))
        self.references: dict[str, PreTrainedModel] = {"": self.model.reference}
        for seed, name in enumerate(kinds):
            self.references[name] = save_adapter(
                path / name, self.model.reference, KINDS[name], seed
            )
        self.path = path

    def load(self, core: EngineCore, *names: str) -> None:
        for name in names:
            adapters_of(core).load_adapter(name, str(self.path / name))

    def check(self, core: EngineCore, requests: Sequence[tuple[str, list[int]]]) -> list[int]:
        """Each answer is that of the reference of its adapter; returns the cached tokens."""
        ids = [adapters_of(core).id_of(name) if name else 0 for name, _ in requests]
        answers = generate(core, [prompt for _, prompt in requests], TOKENS, ids)
        for (name, prompt), answer in zip(requests, answers, strict=True):
            wrong = wrong_tokens(self.references[name], prompt, answer.tokens, _NEAR_TIE)
            assert not wrong, "\n".join([f"adapter {name!r}", *wrong])
        return [answer.cached for answer in answers]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_row_has_its_adapter(family: str, tmp_path: Path) -> None:
    served = Served(tmp_path, family, list(KINDS))
    with served.model.engine(max_num_seqs=8, enable_lora=True) as core:
        served.load(core, *KINDS)
        lengths = (150, 33, 5, 71, 17, 98)
        requests = [
            (name, served.model.prompt(seed, length))
            for (seed, length), name in zip(enumerate(lengths), ("", *KINDS), strict=True)
        ]
        served.check(core, requests)
        # One prompt with every adapter: nothing that one has computed is used for another.
        shared = served.model.prompt(9, 80)
        assert served.check(core, [(name, shared) for name in ("", *KINDS)]) == [0] * 6
        again = served.check(core, [(name, shared) for name in ("", *KINDS)])
        assert all(cached >= 48 for cached in again)


def test_requests_wait_for_a_slot(tmp_path: Path) -> None:
    served = Served(tmp_path, "llama", list(KINDS))
    with served.model.engine(max_num_seqs=8, enable_lora=True, max_loras=2) as core:
        served.load(core, *KINDS)
        names = [*KINDS, "", *KINDS]
        served.check(
            core, [(name, served.model.prompt(i, 10 + 7 * i)) for i, name in enumerate(names)]
        )


def test_requests_that_are_preempted(tmp_path: Path) -> None:
    served = Served(tmp_path, "llama", ["all", "dora"])
    pool = (1 + served.model.pages(256)) * served.model.page_bytes
    with served.model.engine(
        kv_cache_memory_bytes=str(pool), max_num_seqs=8, enable_lora=True
    ) as core:
        served.load(core, "all", "dora")
        names = ["all", "dora", "", "all", "dora", ""]
        served.check(
            core, [(name, served.model.prompt(i, 60 + 7 * i)) for i, name in enumerate(names)]
        )
        assert core.bindings.engine.stats().num_preemptions > 0


def test_a_replaced_adapter_serves_no_old_prefix(tmp_path: Path) -> None:
    served = Served(tmp_path, "llama", ["all", "dora"])
    modules = f"sql={tmp_path / 'all'}"
    with served.model.engine(lora_modules=[modules], max_cpu_loras=1) as core:
        adapters = adapters_of(core)
        prompt = served.model.prompt(1, 100)
        served.references["sql"] = served.references["all"]
        assert served.check(core, [("sql", prompt)]) == [0]
        assert served.check(core, [("sql", prompt)]) != [0]
        before = adapters.id_of("sql")
        adapters.load_adapter("sql", str(tmp_path / "dora"), load_inplace=True)
        assert adapters.id_of("sql") != before
        served.references["sql"] = served.references["dora"]
        assert served.check(core, [("sql", prompt)]) == [0]
        with pytest.raises(EngineError, match="loaded already"):
            adapters.load_adapter("sql", str(tmp_path / "all"))
        with pytest.raises(EngineError, match="--max-cpu-loras"):
            adapters.load_adapter("other", str(tmp_path / "all"))
        assert adapters.unload_adapter("sql")["name"] == "sql"
        assert adapters.adapters() == []
        with pytest.raises(EngineError, match="`sql` does not exist"):
            adapters.id_of("sql")
        with pytest.raises(EngineError, match="`sql` does not exist"):
            adapters.unload_adapter("sql")
        served.check(core, [("", prompt)])


def test_ranks_replace_and_forget(tmp_path: Path) -> None:
    served = Served(tmp_path, "llama", ["all", "dora", "bias"])
    options = {"enable_lora": True, "max_loras": 1, "tensor_parallel_size": 2}
    with served.model.engine(**options) as core:
        adapters, prompt = adapters_of(core), served.model.prompt(1, 60)
        sizes: list[int] = []
        for number, name in enumerate(("all", "dora", "bias")):
            path = str(tmp_path / name)
            sizes.append(adapters.load_adapter("sql", path, load_inplace=number > 0)["bytes"])
            served.references["sql"] = served.references[name]
            served.load(core, name)
            served.check(core, [("sql", prompt), ("", prompt), (name, prompt)])
            adapters.unload_adapter(name)
        adapters.unload_adapter("sql")
        served.check(core, [("", prompt)])
        stats = core.bindings.engine.stats()
        assert (stats.adapters_loaded, stats.num_running_adapters) == (6, 0)
    with served.model.engine(enable_lora=True) as core:
        alone = adapters_of(core).load_adapter("all", str(tmp_path / "all"))["bytes"]
    assert alone < sizes[0] < 2 * alone  # each rank has its part


def test_requests_that_wait_keep_what_they_were_submitted_with(tmp_path: Path) -> None:
    served = Served(tmp_path, "llama", ["all", "dora", "bias"])
    with served.model.engine(enable_lora=True) as core:
        adapters, native = adapters_of(core), core.bindings.engine
        prompts = [served.model.prompt(seed, 40) for seed in range(4)]
        names = ["all", "dora", "bias"]
        sampling = _native.SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
        core.engine.pause("keep")
        for number, (name, prompt) in enumerate(zip(names, prompts, strict=False)):
            path = str(tmp_path / name)
            adapters.load_adapter("sql", path, load_inplace=number > 0)
            ids = np.array(prompt, np.int32)
            core.engine.submit(number, ids, sampling, adapter=adapters.id_of("sql"))
        core.engine.resume()
        tokens: dict[int, list[int]] = {number: [] for number in range(len(names))}
        errors: dict[int, str | None] = {}
        while len(errors) < len(names):
            for output in native.wait(30):
                tokens[output.request_id] += output.new_token_ids
                if output.finish_reason is not None:
                    errors[output.request_id] = output.error_code
    # Two loads later, the weights of the first are gone.
    assert errors == {0: "UNAVAILABLE", 1: None, 2: None}
    for number in (1, 2):
        reference = served.references[names[number]]
        assert not wrong_tokens(reference, prompts[number], tokens[number], _NEAR_TIE)


def test_adapters_of_a_folder_come_and_go(tmp_path: Path) -> None:
    served = Served(tmp_path, "llama", ["all", "dora", "bias"])
    options = {"lora_modules": [f"sql={tmp_path / 'all'}"], "lora_folder": str(tmp_path)}
    with served.model.engine(**options, max_cpu_loras=2) as core:
        adapters, prompt = adapters_of(core), served.model.prompt(1, 70)
        served.references["sql"] = served.references["all"]
        before: list[int] = []
        for name in ("dora", "bias", "dora"):  # there is room for one of them
            adapters.require_adapter(name)
            before.append(adapters.id_of(name))
            assert served.check(core, [(name, prompt), ("sql", prompt)])[0] == 0
            assert {each["name"] for each in adapters.adapters()} == {"sql", name}
        adapters.require_adapter("dora")
        assert adapters.id_of("dora") == before[2] != before[0]
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "adapter_config.json").write_text("{}")
        with pytest.raises(EngineError, match="cannot be used"):
            adapters.require_adapter("broken")
        assert adapters.id_of("dora") == before[2]  # what cannot be loaded takes no place
        for name in ("other", "..", "", "../" + tmp_path.name + "/all", "model"):
            with pytest.raises(EngineError, match="does not exist"):
                adapters.require_adapter(name)
        adapters.unload_adapter("dora")
        adapters.load_adapter("second", str(tmp_path / "bias"))
        with pytest.raises(EngineError, match="--max-cpu-loras"):
            adapters.require_adapter("bias")
    with pytest.raises(ConfigError, match="--lora-folder"):
        served.model.engine(lora_folder=str(tmp_path / "none")).__enter__()


def test_adapters_that_do_not_fit_are_refused_with_a_reason(tmp_path: Path) -> None:
    served = Served(tmp_path, "llama", ["all"])
    (name, layer), *_ = linear_layers(served.model.reference).items()
    prefix = f"base_model.model.{name}"
    out, size = layer.weight.shape
    a, b = torch.zeros(2, size), torch.zeros(out, 2)
    good = {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
    norm = {f"base_model.model.model.norm.lora_{x}.weight": m for x, m in (("A", a), ("B", b))}
    embedding = "base_model.model.model.embed_tokens"
    ids = {f"{prefix}.lora_embedding_A": a.clone(), f"{prefix}.lora_embedding_B": b.clone()}
    other = {f"{embedding}.base_layer.weight": torch.zeros(257, size)}
    cases = [
        ({}, {"peft_type": "IA3"}, "only LORA is served"),
        (good, {"modules_to_save": ["lm_head"]}, "modules_to_save has 'lm_head': whole layers"),
        (good, {"bias": "all"}, "only none is supported"),
        (good, {"lora_alpha": None}, "is not a number"),
        ({f"{prefix}.lora_A.weight": a}, {}, "lacks lora_A or lora_B"),
        (good | {"model.norm.weight": b.clone()}, {}, "'model.norm.weight' is not one of"),
        (good | {f"{prefix}.lora_A.weight": a[:, 1:].contiguous()}, {}, r"lora_A must be"),
        (
            good | {f"{prefix}.lora_B.weight": b[1:].contiguous()},
            {},
            r"the model: 'adapter.*lora_B must be",
        ),
        (good | {f"{prefix}.lora_A.weight": a.long()}, {}, "is i64; expected f32"),
        (norm, {}, "changes layers that this model cannot adapt: 'model.norm'"),
        (ids, {}, "is a linear layer in this model"),
        (good | ids, {}, "lacks lora_A or lora_B"),
        (good | {f"{prefix}.lora_A.x.weight": a.clone()}, {}, "lora_A.* twice"),
        (
            {f"{prefix}.lora_A.x.weight": a, f"{prefix}.lora_B.y.weight": b},
            {},
            "several adapters, 'x', 'y': save each",
        ),
        (good | other, {}, "embed_tokens that is not this model's"),
    ]
    with served.model.engine(enable_lora=True) as core:
        adapters = adapters_of(core)
        for number, (tensors, config, reason) in enumerate(cases):
            path = tmp_path / f"case{number}"
            path.mkdir()
            write_adapter(path, tensors, **{"r": 2, "lora_alpha": 4, **config})
            with pytest.raises(EngineError, match=reason):
                adapters.load_adapter("broken", str(path))
        (tmp_path / "whole").mkdir()
        (tmp_path / "whole" / "config.json").write_text("{}")
        several = r"folders in it have: all, case0, case1 and \d+ more"
        for path, reason in (
            (tmp_path, f"has no adapter_config.json; {several}"),
            (tmp_path / "whole", "it is a whole model, to be served itself"),
            (tmp_path / "all" / "none", "none"),
        ):
            with pytest.raises(EngineError, match=reason):
                adapters.load_adapter("broken", str(path))
        with pytest.raises(EngineError, match="1 to 256 characters"):
            adapters.load_adapter("", str(tmp_path / "all"))
        assert adapters.adapters() == []


def test_a_slot_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    make("llama", tmp_path)
    built = build(ModelSource.open(tmp_path), BuildOptions(adapters=True))
    options = _native.ExecutorOptions(kv_cache_dtype="f32", num_blocks=4, max_adapters=2)
    run = _native.NativeExecutor(built.program_text, options)
    batch = SimpleBatch(4, run.table_block_sizes).step({0: [5, 6, 7]})
    for slots in ([-2, 0, 0], [0, 0, 2]):
        with pytest.raises(_native.StatusError, match="adapter_slots must be from -1 to 1"):
            run(batch | {"adapter_slots": np.array(slots, np.int32)})
    with pytest.raises(_native.StatusError, match="a step without adapter_slots"):
        run(batch)
    assert run(batch | {"adapter_slots": np.array([-1, 0, 1], np.int32)})["logits"].shape == (
        1,
        257,
    )


def test_what_cannot_have_adapters_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model = Model(path, make("llama", path))
    with (
        pytest.raises(ConfigError, match="need --executor native"),
        model.engine(enable_lora=True, executor="torch"),
    ):
        pass
    with model.engine() as core:
        assert core.bindings.adapters is None
