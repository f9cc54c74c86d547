"""Adapters of PEFT beside images and audio: several of them and the model itself in one batch, each
with the tokens that PEFT makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagemill.engine.outputs import EngineError
from safetensors.torch import load_file, save_file
from transformers import Qwen2AudioForConditionalGeneration

from tests.adapters.adapted_media import IMAGE, MODELS, Adapted, adapted, check_batch, phi4
from tests.adapters.peft_adapters import NAMES, with_adapters
from tests.media.audio_models import PLACEHOLDER, audio, qwen2_audio
from tests.media.media_model import GENERATED, encoded, text

_FILE = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted("llava", tmp_path_factory.mktemp("llava"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", sorted(MODELS))
def test_tokens_with_images_and_adapters(family: str, tmp_path: Path) -> None:
    check_batch(adapted(family, tmp_path))


@pytest.mark.filterwarnings("ignore")
def test_phi4_has_an_adapter_for_each_kind_of_media(tmp_path: Path) -> None:
    """Of its fused layers; requests name theirs."""
    layers = r"model\.layers\.\d+\..*\.(qkv_proj|o_proj|gate_up_proj|down_proj)"
    reference, model, images = phi4(tmp_path)
    adapters = with_adapters(reference, tmp_path, target_modules=layers)
    check_batch(Adapted(model, adapters, tmp_path, images))


@pytest.mark.filterwarnings("ignore")
def test_lengths_are_those_of_the_models_weights(tmp_path: Path) -> None:
    """DoRA reads weights, whose names in the checkpoint are others than the adapter's."""
    own = {"model.language_model.layers.0.self_attn.q_proj": 20}
    check_batch(adapted("llava", tmp_path, use_dora=True, alpha_pattern=own))


@pytest.mark.filterwarnings("ignore")
def test_ranks_have_adapters_beside_images(tmp_path: Path) -> None:
    check_batch(adapted("qwen2_vl", tmp_path), tensor_parallel_size=2, max_num_batched_tokens=13)


@pytest.mark.filterwarnings("ignore")
def test_parameters_of_all_experts(tmp_path: Path) -> None:
    parameters = ["experts.gate_up_proj", "experts.down_proj"]
    own = {"model.language_model.layers.1.mlp.experts.down_proj": 20, "q_proj": 2}
    config = {"target_parameters": parameters, "alpha_pattern": own}
    check_batch(adapted("qwen3_vl_moe", tmp_path, **config))


@pytest.mark.filterwarnings("ignore")
def test_prefixes_are_those_of_equal_images_and_adapters(llava: Adapted) -> None:
    first, second, _ = llava.images
    prompt = text(1, 10) + IMAGE + text(2, 40)
    with llava.model.llm(enable_lora=True) as llm:
        llava.load(llm)
        cached: list[int] = []
        for adapter, own in (
            ("first", first),
            ("second", first),
            ("first", second),
            ("", first),
            ("first", first),
        ):
            (output,) = llava.model.generate(llm, [prompt], [[own]], adapter=adapter)
            llava.check(output, [own], adapter)
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 0, 0, 48]
        assert encoded(llm) == 2, "adapters of the language model share embeddings of images"


# What earlier versions of `transformers` called the language model of these, and its head.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("prefix", "head"),
    [("language_model.model.", "language_model.lm_head"), ("model.", "lm_head")],
)
def test_adapters_of_earlier_versions_have_other_names(
    prefix: str, head: str, tmp_path: Path
) -> None:
    made = adapted("llava", tmp_path, target_modules=r".*language_model.*q_proj|lm_head")
    prompt, images = text(6, 7) + IMAGE + text(7, 2), [made.images[0]]
    for name in NAMES:
        file = tmp_path / name / _FILE
        tensors = load_file(file)
        older = {
            key.replace("model.model.language_model.", f"model.{prefix}").replace(
                "model.lm_head", f"model.{head}"
            ): tensor
            for key, tensor in tensors.items()
        }
        assert older.keys() != tensors.keys()
        save_file(older, file)
    with made.model.llm(enable_lora=True) as llm:
        made.load(llm)
        for name in NAMES:
            (output,) = made.model.generate(llm, [prompt], [images], adapter=name)
            made.check(output, images, name)


@pytest.mark.filterwarnings("ignore")
def test_layers_that_there_are_not_are_refused(llava: Adapted, tmp_path: Path) -> None:
    """Nor may an adapter change a layer under two names."""
    file = llava.path / NAMES[0] / _FILE
    tensors = load_file(file)
    a = next(key for key in tensors if key.endswith("layers.0.self_attn.q_proj.lora_A.weight"))
    (tmp_path / "adapter_config.json").write_bytes(
        (file.parent / "adapter_config.json").read_bytes()
    )
    with llava.model.llm(enable_lora=True) as llm:
        for other, message in (
            ("vision_tower.layers", "cannot adapt: .*vision_tower.*merge the adapter"),
            ("", "changes one layer as model.language_model.* and as model.layers"),
        ):
            added = {
                key.replace("language_model.", f"{other}." if other else ""): tensors[key].clone()
                for key in (a, a.replace("lora_A", "lora_B"))
            }
            save_file(tensors | added, tmp_path / _FILE)
            with pytest.raises(EngineError, match=message):
                llm.adapters.load_adapter("refused", str(tmp_path))


@pytest.mark.filterwarnings("ignore")
def test_tokens_with_audio_are_those_of_the_merged_model(tmp_path: Path) -> None:
    model = qwen2_audio(tmp_path / "model")
    reference = Qwen2AudioForConditionalGeneration.from_pretrained(tmp_path / "model")
    adapters = with_adapters(reference, tmp_path)
    prompts = [text(1, 3) + [PLACEHOLDER] + text(2, 4), text(3, 9)]
    audios = [[audio(1, 5000)], []]
    with model.llm(enable_lora=True) as llm:
        llm.adapters.load_adapter("first", str(tmp_path / "first"))
        outputs, plain = (
            model.generate(llm, prompts, audios, adapter=adapter) for adapter in ("first", "")
        )
    adapters.set_adapter("first")
    merged = adapters.merge_and_unload(adapter_names=["first"])
    merged.save_pretrained(tmp_path / "merged")
    (tmp_path / "merged" / "tokenizer.json").write_bytes(
        (model.path / "tokenizer.json").read_bytes()
    )
    expected = type(model).__new__(type(model))
    expected.path = tmp_path / "merged"
    with expected.llm() as llm:
        wanted = expected.generate(llm, prompts, audios)
    tokens = [output.choices[0].token_ids for output in outputs]
    assert tokens == [output.choices[0].token_ids for output in wanted]
    assert tokens != [output.choices[0].token_ids for output in plain]
    assert all(len(each) == GENERATED for each in tokens)
