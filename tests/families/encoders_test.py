"""Each encoder equals `transformers` with each of its heads, and so do classifiers of decoders; and
what they read of checkpoints and configurations matters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.inputs.task import Task
from pagemill.models.base import ModelConfigError
from pagemill.models.encoders.deberta_v2 import log_buckets
from pagemill.models.table import ARCHITECTURES, find
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from tests.families.allocated import UNPLANNED, unplanned_bytes
from tests.families.divided import check_ranks, check_stages
from tests.families.encoders import ENCODERS, LABELS, make
from tests.families.sensitivity import unmoved_fields, unmoved_tensors
from tests.parity import small_engine
from tests.parity.executors import EXECUTORS, make_executor, new_batches

# As in families_test.py: both sides compute in f32, and add up rows of up to 136 products in
# different orders.
TOLERANCE = 1e-4
LENGTHS = (61, 1, 150, 16, 33)
MODEL_LEN = 200
TYPED = (
    "albert",
    "bert",
    "deberta-v2",
    "electra",
    "ernie",
    "gte",
    "jina_bert",
    "megatron-bert",
    "nomic_bert",
    "rembert",
    "roformer",
)
SECONDS = {0: 23, 4: 32}  # pairs, and where their second texts begin
_LAYER = re.compile(r"\.(?:layer|layers)\.(\d+)\.")

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    name: str
    task: Task
    path: Path
    prompts: Mapping[int, list[int]]
    rows: Array

    @property
    def options(self) -> BuildOptions:
        return BuildOptions(task=self.task, normalize=False)

    def executed(self, path: Path, kind: str = "native") -> Array:
        """The rows of all prompts in one step, by the checkpoint at `path`."""
        # Vectors of tokens as they are: a length that is divided by hides errors.
        run = make_executor(kind, ModelSource.open(path), task=self.task, normalize=False)
        batch = new_batches(run).step(self.prompts, second_texts=SECONDS)
        return run(batch)["pooled"]

    def distance(self, rows: Array) -> float:
        """The largest difference from the reference, in units of the tolerance."""
        assert np.isfinite(rows).all()
        scale = max(1.0, float(np.abs(self.rows).max()))
        return float(np.abs(rows - self.rows).max()) / (TOLERANCE * scale)

    def distance_at(self, path: Path) -> float:
        """That of the checkpoint at `path`."""
        return self.distance(self.executed(path))


@torch.no_grad()
def _reference(model: PreTrainedModel, task: Task, prompt: list[int], second: int) -> Array:
    """The rows of one prompt."""
    types = [int(position >= second) for position in range(len(prompt))]
    typed = model.config.model_type in TYPED
    typed = typed and model.config.type_vocab_size > 1
    inputs = {"token_type_ids": torch.tensor([types])} if typed else {}
    outputs = model(torch.tensor([prompt]), **inputs)
    rows = outputs.last_hidden_state if task is Task.TOKEN_EMBED else outputs.logits
    return rows[0].numpy().reshape(-1, rows.shape[-1])


CASES = [(name, task) for name, row in sorted(ENCODERS.items()) for task in row.heads]


@pytest.fixture(name="case", scope="module", params=CASES, ids=lambda case: "-".join(case))
def _case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, task = request.param
    path: Path = tmp_path_factory.mktemp(name)
    model = make(name, task, path)
    rng = np.random.default_rng(3)
    # Ids of special tokens are left out: `transformers` takes that of padding for padding.
    prompts = {
        i: rng.integers(6, model.config.vocab_size, n).tolist() for i, n in enumerate(LENGTHS)
    }
    rows = [
        _reference(model, task, prompt, SECONDS.get(i, len(prompt)))
        for i, prompt in prompts.items()
    ]
    return Case(name, task, path, prompts, np.concatenate(rows))


@pytest.mark.parametrize("kind", EXECUTORS)
def test_rows(case: Case, kind: str) -> None:
    assert case.distance(case.executed(case.path, kind)) <= 1


def test_each_tensor_matters(case: Case, tmp_path: Path) -> None:
    """Rows move if a tensor is zero: those around the layers, and all of layer 1."""
    unused = tuple(ENCODERS[case.name].unused)

    def skips(name: str) -> bool:
        layer = _LAYER.search(name)
        pooler = case.task is not Task.CLASSIFY and "pooler." in name
        return (layer is not None and layer[1] != "1") or name.endswith(unused) or pooler

    assert not unmoved_tensors(case.path, tmp_path, case.distance_at, skips)


def test_each_field_of_the_configuration_matters(case: Case, tmp_path: Path) -> None:
    """Rows move, or the model is refused, if a field that the family reads has another value."""
    neutral = ENCODERS[case.name].neutral(case.task)
    assert not unmoved_fields(case.path, tmp_path, case.distance_at, neutral)


def test_what_is_built(case: Case) -> None:
    built = build(ModelSource.open(case.path), BuildOptions(rewrite=False, task=case.task))
    assert built.pooled is not None
    decodes = find(built.architecture).row.task != "embeddings"
    assert built.chunked_prefill == (decodes and case.task is Task.CLASSIFY)
    assert not built.prefix_caching
    classes = tuple(f"LABEL_{i}" for i in range(LABELS)) if case.task.classifies else ()
    assert built.pooled.labels == classes
    assert built.output_size == built.pooled.width == case.rows.shape[1]


def test_the_plan_is_what_an_executor_allocates(case: Case) -> None:
    unplanned = unplanned_bytes(case.path, case.prompts[0], task=case.task.value)
    assert abs(unplanned) <= UNPLANNED


def test_two_ranks(case: Case) -> None:
    source = ModelSource.open(case.path)
    check_ranks(source, case.options, [case.prompts], case.distance, SECONDS)


def test_two_stages(case: Case) -> None:
    source = ModelSource.open(case.path)
    check_stages(source, case.options, [case.prompts], case.distance, SECONDS)


def test_prompts_in_the_engine(case: Case) -> None:
    """Rows of prompts that run together; a decoder's in chunks if the last token is what counts."""
    with small_engine.engine(case.path, task=case.task, max_model_len=MODEL_LEN) as core:
        rows = small_engine.pool(core, list(case.prompts.values()), SECONDS)
    assert case.distance(rows.reshape(case.rows.shape)) <= 1


_NOMIC_FIRST = {
    "vocab_size": "vocab_size",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "type_vocab_size": "type_vocab_size",
}


def _first_keys(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as the first checkpoints of the family have it."""
    if config["model_type"] == "nomic_bert":
        renamed = {name: config[key] for key, name in _NOMIC_FIRST.items()}
        theta = config["rope_parameters"]["rope_theta"]
        stated = {"activation_function": "swiglu", "rotary_emb_base": theta}
        return renamed | stated | {"architectures": ["NomicBertModel"]}
    rope = config.pop("rope_parameters")
    del config["layer_types"]
    thetas = {
        "global_rope_theta": rope["full_attention"]["rope_theta"],
        "local_rope_theta": rope["sliding_attention"]["rope_theta"],
    }
    return config | thetas | {"global_attn_every_n_layers": 2}


@pytest.mark.parametrize("name", ["modernbert", "nomic_bert"])
def test_configurations_of_the_first_checkpoints(name: str, tmp_path: Path) -> None:
    model = make(name, Task.TOKEN_EMBED, tmp_path)
    prompt = list(range(6, 90))
    expected = _reference(model, Task.TOKEN_EMBED, prompt, len(prompt))
    file = tmp_path / "config.json"
    file.write_text(json.dumps(_first_keys(json.loads(file.read_text()))))
    source = ModelSource.open(tmp_path)
    run = make_executor("native", source, task=Task.TOKEN_EMBED, normalize=False)
    rows = run(new_batches(run).step({0: prompt}))["pooled"]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def _ntk_frequencies(base: float, dim: int, factor: float, mixed_b: float | None) -> torch.Tensor:
    """As `NewModel` of the checkpoints' own code has them."""
    pairs = torch.arange(0, dim, 2).float() / dim
    if mixed_b is None:
        return 1.0 / (base * factor) ** pairs / factor ** (2 / dim)
    a = torch.tensor(factor).log() / (dim / 2) ** mixed_b
    return 1.0 / base**pairs / (a * torch.arange(1, dim // 2 + 1).float() ** mixed_b).exp()


@pytest.mark.parametrize("mixed_b", [None, 0.6])
@pytest.mark.parametrize("task", [Task.TOKEN_EMBED, Task.CLASSIFY])
def test_gte_as_first_saved(task: Task, mixed_b: float | None, tmp_path: Path) -> None:
    """`NewModel`, whose rotary embedding reaches further by other frequencies."""
    model = make("gte", task, tmp_path)
    base, factor = 2e4, 8.0
    rotary = next(m for name, m in model.named_modules() if name.endswith("rotary_emb"))
    rotary.inv_freq.copy_(_ntk_frequencies(base, 16, factor, mixed_b))
    prompt = list(range(6, 150))
    expected = _reference(model, task, prompt, len(prompt))
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    del config["rope_parameters"]
    kind = "NewModel" if task is Task.TOKEN_EMBED else "NewForSequenceClassification"
    stated = {"position_embedding_type": "rope", "pack_qkv": True, "logn_attention_scale": False}
    scaling = {"type": "ntk", "factor": factor, "mixed_b": mixed_b}
    names = {"architectures": [kind], "model_type": "new"}
    file.write_text(
        json.dumps(config | stated | names | {"rope_theta": base, "rope_scaling": scaling})
    )
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("gte.", "new."): tensor for name, tensor in tensors.items()}
    save_file(renamed, tmp_path / "model.safetensors")
    run = make_executor("native", ModelSource.open(tmp_path), task=task, normalize=False)
    rows = run(new_batches(run).step({0: prompt}))["pooled"]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def test_esm2_as_published(tmp_path: Path) -> None:
    """Its files have a table of positions, which nothing reads."""
    make("esm2", Task.TOKEN_EMBED, tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    (words,) = [name for name in tensors if name.endswith("embeddings.word_embeddings.weight")]
    tensors[words.replace("word_", "position_")] = torch.zeros(300, 96)
    save_file(tensors, file)
    built = build(ModelSource.open(tmp_path), BuildOptions(task=Task.TOKEN_EMBED))
    assert built.output_size == 96


def test_jina3_as_first_saved(tmp_path: Path) -> None:
    """Under XLM-RoBERTa's architecture, with adapters, which are not used."""
    model = make("jina3", Task.TOKEN_EMBED, tmp_path)
    prompt = list(range(6, 150))
    expected = _reference(model, Task.TOKEN_EMBED, prompt, len(prompt))
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    base = config.pop("rope_parameters")["rope_theta"]
    config |= {"position_embedding_type": "rotary", "rotary_emb_base": base}
    config |= {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"}
    file.write_text(json.dumps(config | {"lora_adaptations": ["text-matching"]}))
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        if tensor.ndim < 2:
            tensors[f"roberta.{name}"] = tensor
            continue
        parts = f"roberta.{name.removesuffix('.weight')}.parametrizations.weight"
        tensors[f"{parts}.original"] = tensor
        tensors[f"{parts}.0.lora_A"] = torch.ones(1, 4, tensor.shape[1])
        tensors[f"{parts}.0.lora_B"] = torch.ones(1, tensor.shape[0], 4)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelConfigError, match="--hf-overrides .*JinaEmbeddingsV3Model"):
        build(ModelSource.open(tmp_path), BuildOptions(task=Task.TOKEN_EMBED))
    source = ModelSource.open(tmp_path, {"architectures": ["JinaEmbeddingsV3Model"]})
    run = make_executor("native", source, task=Task.TOKEN_EMBED, normalize=False)
    rows = run(new_batches(run).step({0: prompt}))["pooled"]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def test_each_encoder_has_a_row() -> None:
    encoders = {name for name, row in ARCHITECTURES.items() if row.task == "embeddings"}
    from transformers import CONFIG_MAPPING, MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING

    configs = [CONFIG_MAPPING[row.model_type] for row in ENCODERS.values()]
    kinds = {
        mapping[config].__name__
        for mapping in (MODEL_MAPPING, MODEL_FOR_TEXT_ENCODING_MAPPING)
        for config in configs
        if config in mapping
    }
    elsewhere = {
        "GteNewModel",
        "HF_ColBERT",
        "LlamaBidirectionalModel",
        "NeoBERTLMHead",
        "NewModel",
    }  # heads_test.py, and above
    assert encoders - kinds == elsewhere
    assert find("XLMRobertaForSequenceClassification").task is Task.CLASSIFY


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (128, 512), (64, 2048), (9, 300)])
def test_buckets_of_distances_of_deberta(buckets: int, most: int) -> None:
    distances = np.arange(1, 2 * most)
    expected = make_log_bucket_position(torch.from_numpy(distances), buckets, most)
    assert log_buckets(distances, buckets, most).tolist() == expected.int().tolist()
