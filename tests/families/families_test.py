"""Each family equals `transformers`: logits, and tokens through the engine; and what it reads of
checkpoints and configurations matters."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.models.table import ARCHITECTURES
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, build, model_shapes
from pagemill.weights.random_file import random_file
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.families.allocated import UNPLANNED, unplanned_bytes
from tests.families.divided import check_ranks, check_stages
from tests.families.families import FAMILIES, make
from tests.families.family import NEUTRAL, Family
from tests.families.rounded_matrices import chosen_matrices, rounded, write_values
from tests.families.sensitivity import unmoved_fields, unmoved_tensors
from tests.parity.engine_model import MODEL_LEN, Model
from tests.parity.executors import EXECUTORS, make_executor, new_batches

# Both sides compute in f32 with logits of about 1 to 10. They add up rows of up to 136 products in
# different orders, which moves a logit by some 1e-6 per layer. A wrong window, scale or position
# moves logits by more than 1e-2.
TOLERANCE = 1e-4
TOKENS = 64  # generated
FEW_BLOCKS = 64  # of 16 tokens: those of a prompt, in every group of layers
# Experts that lie one below the other, which quantization leaves alone.
OTHER_EXPERTS = ("dbrx",)
_LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    name: str
    model: Model
    prompt: list[int]
    logits: Array

    def executed(self, source: ModelSource) -> Array:
        """Logits of the prompt by the model of `source`, without room for longer steps."""
        run = make_executor(
            "native",
            source,
            num_blocks=FEW_BLOCKS,
            max_num_tokens=len(self.prompt),
            num_threads=1,
        )
        batches = new_batches(run, FEW_BLOCKS)
        return run(batches.step({0: self.prompt}, all_logits=True))["logits"]

    def distance_at(self, path: Path) -> float:
        """That of the checkpoint at `path`."""
        return self.distance(self.executed(ModelSource.open(path)))

    def distance(self, logits: Array) -> float:
        """The largest difference from the reference, in units of the tolerance."""
        assert np.isfinite(logits).all()
        scale = max(1.0, float(np.abs(self.logits).max()))
        return float(np.abs(logits - self.logits).max()) / (TOLERANCE * scale)


@pytest.fixture(name="case", scope="module", params=sorted(FAMILIES))
def _case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path: Path = tmp_path_factory.mktemp(request.param)
    model = Model(path, make(request.param, path))
    prompt = model.prompt(3, 61)
    with torch.no_grad():
        logits = model.reference(torch.tensor([prompt])).logits[0].numpy()
    return Case(request.param, model, prompt, logits)


def _chunks(prompt: list[int]) -> list[dict[int, list[int]]]:
    """The prompt in chunks, then one token."""
    return [{0: prompt[:37]}, {0: prompt[37:-1]}, {0: prompt[-1:]}]


@pytest.mark.parametrize("kind", EXECUTORS)
def test_logits(case: Case, kind: str) -> None:
    """A prompt in chunks and a decoded token, beside other prompts, in blocks that were used
    before."""
    run = make_executor(kind, ModelSource.open(case.model.path))
    batches = new_batches(run)
    run(batches.step({1: case.prompt[::-1]}))
    batches.free(1)
    rows: list[Array] = []
    for other, chunk in enumerate(_chunks(case.prompt), 2):
        step = {other: case.prompt[: 5 * other], **chunk}
        rows.append(run(batches.step(step, all_logits=True))["logits"][5 * other :])
    assert case.distance(np.concatenate(rows)) <= 1


def test_a_checkpoint_in_bf16(case: Case, tmp_path: Path) -> None:
    """Matrices are used as they are stored, vectors become f32, in any shape."""
    path = case.model.path
    tensors = load_file(path / "model.safetensors")
    rounded = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(rounded, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((path / "config.json").read_text())
    reference = copy.deepcopy(case.model.reference)
    with torch.no_grad():
        for name, tensor in reference.state_dict().items():
            if not name.endswith(tuple(FAMILIES[case.name].unused)):
                tensor.copy_(tensor.bfloat16())
        elsewhere = FAMILIES[case.name].elsewhere
        if elsewhere is not None and elsewhere.prepare is not None:
            elsewhere.prepare(reference)
        logits = reference(torch.tensor([case.prompt])).logits[0].numpy()
    assert replace(case, logits=logits).distance_at(tmp_path) <= 1


def test_matrices_that_are_quantized_at_load(case: Case, tmp_path: Path) -> None:
    """All large ones are, and compute what the values that they are rounded to do."""
    path = case.model.path
    chosen = chosen_matrices(path)
    large = [  # without tables of tokens and positions
        tensor
        for tensor in ModelSource.open(path).tensors
        if len(tensor.shape) > 1 and 16 <= min(tensor.shape[-2:]) <= max(tensor.shape) < 257
    ]
    share = sum(math.prod(m.shape) for m in chosen) / sum(math.prod(t.shape) for t in large)
    assert (share > 0.7) == (case.name not in OTHER_EXPERTS)
    # Stacks that are stored as one tensor may have blocks that cut the matrices of a product.
    name = "fp8" if all(len(matrix.shape) == 2 for matrix in chosen) else "fp8_per_block"
    source = rounded(path, name, tmp_path / "quantized")
    write_values(path, source, tmp_path)
    values = replace(case, logits=case.executed(ModelSource.open(tmp_path)))
    assert values.distance(case.executed(source)) <= 1
    assert values.distance(case.logits) > 1


def test_random_weights(case: Case, tmp_path: Path) -> None:
    """The shapes that the configuration alone says are all that the model needs."""
    source, options = ModelSource.open(case.model.path), BuildOptions(rewrite=False)
    path = random_file(tmp_path, model_shapes(source, options), "bf16", values=False)
    stored = {tensor.name: tensor for tensor in source.tensors}
    random = source.with_file(path)
    build(random, options)
    # Some families are read by several layouts (a stack, or its matrices one below the other), and
    # with a bias or without.
    for tensor in random.tensors:
        found = stored.get(tensor.name, tensor)
        flat = math.prod(found.shape) == math.prod(tensor.shape) and len(tensor.shape) == 3
        assert found.fits(tensor.shape) or flat, tensor.name


def test_greedy_tokens(case: Case) -> None:
    """Prompts of several lengths together, in chunks; then again, with their prefixes cached."""
    model = case.model
    prompts = [model.prompt(seed, n) for seed, n in enumerate((150, 33, 5, 71, 17, 98, 2, 41))]
    with model.engine(max_num_seqs=8) as core:
        answers = model.run(core, *prompts, num_tokens=TOKENS)
        turn = [*prompts[0], *answers[0].tokens, 5]
        # The last token of an answer is not computed.
        assert model.run(core, turn)[0].cached >= (len(turn) - 2) // model.block * model.block
    # A model that always generates the same token would prove little.
    assert len({token for answer in answers for token in answer.tokens}) > 1


def test_two_ranks(case: Case) -> None:
    source = ModelSource.open(case.model.path)
    check_ranks(source, BuildOptions(), _chunks(case.prompt), case.distance)


def test_two_ranks_with_whole_experts(case: Case) -> None:
    source = ModelSource.open(case.model.path)
    if "moe_route" in build(source, BuildOptions()).program_text:
        check_ranks(source, BuildOptions(), _chunks(case.prompt), case.distance, whole_experts=True)
        return
    with pytest.raises(ModelConfigError, match="has no experts: leave out --enable-expert-paral"):
        build(source, BuildOptions(shard=Shard(whole_experts=True)))


def test_four_ranks_normalize_all_heads(tmp_path: Path) -> None:
    """Each takes its own out of the middle; two have the same KV head."""
    heads = {"num_attention_heads": 8, "hidden_size": 96, "num_key_value_heads": 2}
    model = Model(tmp_path, make("olmo2", tmp_path, changes=heads))
    prompt = model.prompt(4, 61)
    with torch.no_grad():
        logits = model.reference(torch.tensor([prompt])).logits[0].numpy()
    case, source = Case("olmo2", model, prompt, logits), ModelSource.open(tmp_path)
    check_ranks(source, BuildOptions(), _chunks(prompt), case.distance, count=4)


def test_two_stages(case: Case) -> None:
    source = ModelSource.open(case.model.path)
    check_stages(source, BuildOptions(), _chunks(case.prompt), case.distance)


def test_the_plan_is_what_an_executor_allocates(case: Case) -> None:
    assert abs(unplanned_bytes(case.model.path, case.prompt)) <= UNPLANNED


def test_requests_that_are_preempted(case: Case) -> None:
    model = case.model
    pool = (1 + model.pages(MODEL_LEN)) * model.page_bytes
    # Steps must not depend on the time that others take: some families preempt one request.
    options = {"kv_cache_memory_bytes": str(pool), "max_num_seqs": 8, "max_step_ms": 0.0}
    with model.engine(**options) as core:
        model.run(
            core, *[model.prompt(seed, 40 + 7 * seed) for seed in range(8)], num_tokens=TOKENS
        )
        # Requests whose layers all have windows or states do not grow.
        assert core.bindings.engine.stats().num_preemptions > 0 or not model.grows


def test_each_tensor_matters(case: Case, tmp_path: Path) -> None:
    """Logits move if a tensor is zero: those around the layers, and all of layer 1."""
    unused = tuple(FAMILIES[case.name].unused)

    def skips(name: str) -> bool:
        layer = _LAYER.search(name)
        return (layer is not None and layer[1] != "1") or name.endswith(unused)

    assert not unmoved_tensors(case.model.path, tmp_path, case.distance_at, skips)


def test_each_field_of_the_configuration_matters(case: Case, tmp_path: Path) -> None:
    """Logits move, or the model is refused, if a field that the family reads has another value."""
    neutral = NEUTRAL | FAMILIES[case.name].unused
    assert not unmoved_fields(case.model.path, tmp_path, case.distance_at, neutral)


def _architecture(family: Family) -> str:
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    if family.elsewhere:
        return family.elsewhere.architecture
    return MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[family.model_type]].__name__


def test_jais_as_first_saved(tmp_path: Path) -> None:
    """With other keys, of which one has the product of two."""
    make("jais", tmp_path)
    expected = build(ModelSource.open(tmp_path), BuildOptions()).program_text
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    older = {key: config.pop(f"mup_{key}") for key in ("embeddings_scale", "scale_qk_dot_by_d")}
    older["width_scale"] = config.pop("mup_output_alpha") * config.pop("mup_width_scale")
    file.write_text(json.dumps(config | older))
    assert build(ModelSource.open(tmp_path), BuildOptions()).program_text == expected


def test_model_types_are_those_of_the_table() -> None:
    for family in FAMILIES.values():
        if not family.elsewhere:
            assert family.model_type in ARCHITECTURES[_architecture(family)].model_types


def test_families_without_a_row_are_named() -> None:
    """Rows that wait to move here, from tests/parity."""
    covered = {_architecture(family) for family in FAMILIES.values()}
    # tests/media has encoder-decoders.
    others = ("embeddings", "text of audio", "text of images", "text of text")
    elsewhere = {name for name, row in ARCHITECTURES.items() if row.task in others}
    assert sorted(ARCHITECTURES.keys() - covered - elsewhere) == [
        "AriaForConditionalGeneration",
        "AudioFlamingo3ForConditionalGeneration",
        "AyaVisionForConditionalGeneration",
        "CLIPModel",
        "Cohere2VisionForConditionalGeneration",
        "ColModernVBertForRetrieval",
        "ColPaliForRetrieval",
        "ColQwen2ForRetrieval",
        "ColQwen3",
        "DeepseekOCRForCausalLM",
        "DeepseekOcr2ForConditionalGeneration",
        "DeepseekVLForConditionalGeneration",
        "DeepseekVLHybridForConditionalGeneration",
        "Ernie4_5_VLMoeForConditionalGeneration",
        "Glm46VForConditionalGeneration",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "GlmAsrForConditionalGeneration",
        "GlmOcrForConditionalGeneration",
        "GotOcr2ForConditionalGeneration",
        "Granite4VisionForConditionalGeneration",
        "GraniteDoclingForConditionalGeneration",
        "GraniteSpeechForConditionalGeneration",
        "GraniteSpeechPlusForConditionalGeneration",
        "HCXVisionV2ForCausalLM",
        "HyperCLOVAXVisionV2ForConditionalGeneration",
        "Idefics2ForConditionalGeneration",
        "Idefics3ForConditionalGeneration",
        "InternVLChatModel",
        "InternVLForConditionalGeneration",
        "JanusForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "Lfm2VlForConditionalGeneration",
        "Lfm3VlForConditionalGeneration",
        "LightOnOcrForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "LlavaNextForConditionalGeneration",
        "LlavaNextVideoForConditionalGeneration",
        "LlavaOnevisionForConditionalGeneration",
        "MetaClip2Model",
        "MiniCPMOcrForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
        "MossTranscribeDiarizeForConditionalGeneration",
        "NemotronH_Omni_Reasoning_V3",
        "Ovis2ForConditionalGeneration",
        "PaddleOCRVLForConditionalGeneration",
        "PaliGemmaForConditionalGeneration",
        "Phi4MultimodalForCausalLM",
        "QianfanOCRForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5OmniForConditionalGeneration",
        "Qwen2_5OmniModel",
        "Qwen2_5OmniThinkerForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3OmniMoeThinkerForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Siglip2Model",
        "SiglipModel",
        "SmolVLMForConditionalGeneration",
        "Step3p7ForConditionalGeneration",
        "VideoLlama3ForConditionalGeneration",
        "VideoLlavaForConditionalGeneration",
        "VipLlavaForConditionalGeneration",
        "VoxtralForConditionalGeneration",
    ]
