"""Adapters of PEFT beside images and audio: several of them and the model itself in one batch, each
with the tokens that PEFT makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.llm import LLM, Output
from pagemill.engine.outputs import EngineError
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, Qwen2AudioForConditionalGeneration

from tests.adapters.peft_adapters import NAMES, with_adapters
from tests.media.audio_models import PLACEHOLDER, audio, qwen2_audio
from tests.media.media_model import GENERATED, Item, MediaTestModel, encoded, text
from tests.media.phi4_models import image as tiles_of
from tests.media.phi4_models import phi4_multimodal
from tests.media.qwen_vl_models import MAKERS, image, image_model
from tests.parity.tiny_models import LLAVA_IMAGE, make, save

IMAGE = [3]  # the placeholder of all these models
_FILE = "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapted:
    """A model, its reference with the adapters NAMES, which are in folders of `path`, and three
    different images."""

    model: MediaTestModel
    reference: PeftModel
    path: Path
    images: Sequence[Item]

    def check(self, output: Output, images: Sequence[Item], adapter: str) -> None:
        """The output is that of PEFT with this adapter, "" for the model itself."""
        if not adapter:
            with self.reference.disable_adapter():
                self.model.check(output, images)
            return
        self.reference.set_adapter(adapter)
        self.model.check(output, images)

    def load(self, llm: LLM) -> None:
        for name in NAMES:
            llm.adapters.load_adapter(name, str(self.path / name))


def _llava(path: Path) -> tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]:
    reference = make("llava", path)

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = torch.tensor(np.stack(images)) if images else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    random = np.random.default_rng(1)
    images = [random.normal(size=LLAVA_IMAGE).astype(np.float32) for _ in range(3)]
    return reference, MediaTestModel(path, logits), images


def _grid_model(
    make_reference: Callable[[Path], PreTrainedModel],
) -> Callable[[Path], tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]]:
    def made(path: Path) -> tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]:
        reference = make_reference(path)
        images = [image(1, 6, 6), image(2, 4, 10), image(3, 8, 2)]
        return reference, image_model(path, reference), images

    return made


def _phi4(path: Path) -> tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]:
    reference, model = phi4_multimodal(path)
    return reference, model, [tiles_of(1, 4, 4), tiles_of(2, 6, 8), tiles_of(3, 4, 5)]


_MODELS: dict[str, Callable[[Path], tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]]] = {
    "llava": _llava,
    "qwen2_vl": _grid_model(lambda path: make("qwen2_vl", path)),
    "qwen3_vl_moe": _grid_model(lambda path: save(MAKERS["qwen3_vl_moe"](), path)),
    "glm4v": _grid_model(lambda path: save(MAKERS["glm4v"](), path)),
}


def _adapted(family: str, path: Path, **config: Any) -> Adapted:
    torch.manual_seed(0)
    reference, model, images = _MODELS[family](path)
    return Adapted(model, with_adapters(reference, path, **config), path, images)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return _adapted("llava", tmp_path_factory.mktemp("llava"))


def _check_batch(adapted: Adapted, **options: Any) -> None:
    """Requests with adapters and without, with images and without, share steps."""
    first, second, third = adapted.images
    prompts = [
        text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
        IMAGE + text(4, 4),
        text(5, 30),
        text(6, 7) + IMAGE + text(7, 2),
    ]
    images = [[first, second], [second], [], [third]]
    adapters = [adapter for adapter in ("", *NAMES) for _ in prompts]
    with adapted.model.llm(enable_lora=True, max_num_seqs=12, **options) as llm:
        adapted.load(llm)
        for adapter in ("", *NAMES):
            llm.enqueue(
                prompts,
                images=images,
                adapter=adapter,
                temperature=0.0,
                max_tokens=GENERATED,
                ignore_eos=True,
                logprobs=0,
            )
        outputs = llm.wait_for_completion()
    for output, own, adapter in zip(outputs, images * 3, adapters, strict=True):
        adapted.check(output, own, adapter)
    tokens = {tuple(output.choices[0].token_ids) for output in outputs}
    assert len(tokens) > 2 * len(prompts), "adapters change tokens, or nothing was tested"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", sorted(_MODELS))
def test_tokens_with_images_and_adapters(family: str, tmp_path: Path) -> None:
    _check_batch(_adapted(family, tmp_path))


@pytest.mark.filterwarnings("ignore")
def test_phi4_has_an_adapter_for_each_kind_of_media(tmp_path: Path) -> None:
    """Of its fused layers; requests name theirs."""
    layers = r"model\.layers\.\d+\..*\.(qkv_proj|o_proj|gate_up_proj|down_proj)"
    reference, model, images = _phi4(tmp_path)
    adapters = with_adapters(reference, tmp_path, target_modules=layers)
    _check_batch(Adapted(model, adapters, tmp_path, images))


@pytest.mark.filterwarnings("ignore")
def test_lengths_are_those_of_the_models_weights(tmp_path: Path) -> None:
    """DoRA reads weights, whose names in the checkpoint are others than the adapter's."""
    own = {"model.language_model.layers.0.self_attn.q_proj": 20}
    _check_batch(_adapted("llava", tmp_path, use_dora=True, alpha_pattern=own))


@pytest.mark.filterwarnings("ignore")
def test_ranks_have_adapters_beside_images(tmp_path: Path) -> None:
    _check_batch(_adapted("qwen2_vl", tmp_path), tensor_parallel_size=2, max_num_batched_tokens=13)


@pytest.mark.filterwarnings("ignore")
def test_parameters_of_all_experts(tmp_path: Path) -> None:
    parameters = ["experts.gate_up_proj", "experts.down_proj"]
    own = {"model.language_model.layers.1.mlp.experts.down_proj": 20, "q_proj": 2}
    config = {"target_parameters": parameters, "alpha_pattern": own}
    _check_batch(_adapted("qwen3_vl_moe", tmp_path, **config))


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
    adapted = _adapted("llava", tmp_path, target_modules=r".*language_model.*q_proj|lm_head")
    prompt, images = text(6, 7) + IMAGE + text(7, 2), [adapted.images[0]]
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
    with adapted.model.llm(enable_lora=True) as llm:
        adapted.load(llm)
        for name in NAMES:
            (output,) = adapted.model.generate(llm, [prompt], [images], adapter=name)
            adapted.check(output, images, name)


@pytest.mark.filterwarnings("ignore")
def test_adapters_of_encoders_are_refused(llava: Adapted, tmp_path: Path) -> None:
    """Nor may an adapter change a layer under two names."""
    file = llava.path / NAMES[0] / _FILE
    tensors = load_file(file)
    a = next(key for key in tensors if key.endswith("layers.0.self_attn.q_proj.lora_A.weight"))
    (tmp_path / "adapter_config.json").write_bytes(
        (file.parent / "adapter_config.json").read_bytes()
    )
    with llava.model.llm(enable_lora=True) as llm:
        for other, message in (
            ("vision_tower.encoder", "cannot adapt: .*vision_tower.*not those of encoders"),
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
