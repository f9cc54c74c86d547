"""Images of ERNIE 4.5 VL through the engine: its tokens are those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.media import MediaFrontEnd, place_media
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.ernie4_5_vl import Ernie45VlModel
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import Ernie4_5_VLMoeConfig, Ernie4_5_VLMoeForConditionalGeneration

from tests.media.media_model import MediaTestModel, encoded, media_prompts, text
from tests.media.qwen_vl_models import Patches
from tests.parity.tiny_models import save

_IMAGE, _START, _END = 3, 5, 6
IMAGE = [_START, _IMAGE, _END]
_WORDS = {_IMAGE: "<|IMAGE_PLACEHOLDER|>", _START: "<|IMAGE_START|>", _END: "<|IMAGE_END|>"}
# What the template of published checkpoints writes for an image.
_TEMPLATE = (
    "{% for part in messages[0].content %}{% if part.type == 'image' %}"
    "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}"
)
CHANNELS = 3 * 4 * 4
_TEXT: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "moe_intermediate_size": [40, 24],
    "moe_num_experts": 5,
    "moe_k": 2,
    "moe_num_shared_experts": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]},
    "bos_token_id": None,
    "eos_token_id": None,
}
_VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_heads": 3,
    "patch_size": 4,
}
CONFIG: dict[str, Any] = {
    "text_config": _TEXT,
    "vision_config": _VISION,
    "image_token_id": _IMAGE,
    "image_start_token_id": _START,
    "image_end_token_id": _END,
    "video_token_id": 4,
    "video_start_token_id": 7,
    "video_end_token_id": 8,
}


def image(seed: int, height: int, width: int) -> Patches:
    """An image of height x width patches; a quarter as many tokens."""
    values = np.random.default_rng(seed).normal(size=(height * width, CHANNELS))
    return values.astype(np.float32), (1, height, width)


SQUARE, WIDE, LARGE = image(1, 6, 6), image(2, 4, 10), image(5, 14, 16)


def ernie_vl(path: Path) -> MediaTestModel:
    """A checkpoint whose first layer has no experts."""
    config = Ernie4_5_VLMoeConfig(**CONFIG)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = Ernie4_5_VLMoeForConditionalGeneration(config)
    with torch.no_grad():
        for name, bias in model.named_parameters():
            if name.endswith("e_score_correction_bias"):
                bias.copy_(torch.randn_like(bias) * 0.1)
    reference = save(model, path)

    def logits(ids: list[int], images: Sequence[Patches]) -> torch.Tensor:
        row, inputs = torch.tensor([ids]), dict[str, Any]()
        if images:
            of_images = torch.isin(row, torch.tensor(IMAGE)).int()
            inputs = {
                "pixel_values": torch.tensor(np.concatenate([values for values, _ in images])),
                "image_grid_thw": torch.tensor([grid for _, grid in images]),
                "mm_token_type_ids": (row == _IMAGE).int(),
                "moe_mm_token_type_ids": of_images,
            }
        # It keeps the position offset of the previous call.
        reference.model.rope_deltas = None
        with torch.inference_mode():
            return reference(row, use_cache=False, **inputs).logits[0]

    return MediaTestModel(path, logits, _WORDS)


@pytest.fixture(scope="module", name="ernie")
def _ernie(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return ernie_vl(tmp_path_factory.mktemp("ernie_vl"))


PROMPTS = media_prompts(IMAGE)
IMAGES = [[SQUARE, WIDE], [LARGE], []]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_images(ernie: MediaTestModel, executor: str) -> None:
    with ernie.llm(executor=executor) as llm:
        outputs = ernie.generate(llm, PROMPTS, IMAGES, logprobs=0)
        # Both ends of an image are items, too, which are encoded once.
        assert encoded(llm) == 3 + 2
    for output, own in zip(outputs, IMAGES, strict=True):
        ernie.check(output, own)
    squares, wides = [_START, *[_IMAGE] * 9, _END], [_START, *[_IMAGE] * 10, _END]
    expected = text(1, 3) + squares + text(2, 5) + wides + text(3, 2)
    assert outputs[0].prompt_token_ids == expected


@pytest.mark.parametrize("step", [56, 59, 61])
def test_steps_may_end_inside_an_image(ernie: MediaTestModel, step: int) -> None:
    """Some have tokens of one kind alone."""
    prompt = text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 70)
    images = [LARGE, WIDE]
    with ernie.llm(max_num_batched_tokens=step) as llm:
        (output,) = ernie.generate(llm, [prompt], [images], logprobs=0)
    ernie.check(output, images)


def test_language_model_only(ernie: MediaTestModel) -> None:
    ernie.check_language_model_only("vision_model.", SQUARE)


def test_ranks_and_stages_of_text(ernie: MediaTestModel) -> None:
    ernie.check_divided()


@pytest.mark.parametrize("experts", [False, True])
def test_ranks(ernie: MediaTestModel, experts: bool) -> None:
    """Ranks divide each expert, or have some of each kind."""
    ernie.check_all(PROMPTS, IMAGES, tensor_parallel_size=2, enable_expert_parallel=experts)


def test_prefixes_are_those_of_equal_images(ernie: MediaTestModel) -> None:
    prompt = text(1, 10) + IMAGE + text(2, 40)
    with ernie.llm() as llm:
        cached: list[int] = []
        for own in (WIDE, (WIDE[0], (1, 10, 4)), WIDE):
            (output,) = ernie.generate(llm, [prompt], [[own]])
            ernie.check(output, [own])
            cached.append(output.num_cached_tokens)
    assert cached == [0, 0, 48]


def test_random_weights(ernie: MediaTestModel, tmp_path: Path) -> None:
    """Of a checkpoint of which only the configuration is there."""
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((ernie.path / name).read_bytes())
    with MediaTestModel(tmp_path, ernie.reference).llm(load_format="dummy") as llm:
        (output,) = ernie.generate(llm, [IMAGE + text(1, 3)], [[SQUARE]])
    assert len(output.prompt_token_ids) == 14


def test_published_templates_write_another_placeholder(ernie: MediaTestModel) -> None:
    parts = [{"type": "image", "image": WIDE}, {"type": "text", "text": "t20"}]
    with ernie.llm(chat_template=_TEMPLATE) as llm:
        (output,) = llm.chat([{"role": "user", "content": parts}], max_tokens=1)
    assert output.prompt_token_ids == [_START, *[_IMAGE] * 10, _END, 20]


def test_published_towers_have_other_names(ernie: MediaTestModel, tmp_path: Path) -> None:
    tensors = load_file(ernie.path / "model.safetensors")
    published = {
        name.replace("model.vision_model.", "vision_model."): tensor
        for name, tensor in tensors.items()
    }
    save_file(published, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((ernie.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert " vision_model.ln" in built.encoders[0].program_text


def test_the_encoder_reads_two_rows_of_the_embedding(ernie: MediaTestModel) -> None:
    (encoder,) = build(ModelSource.open(ernie.path), BuildOptions()).encoders
    rows = [line for line in encoder.program_text.splitlines() if "weight model.embed" in line]
    assert len(rows) == 2 and all(" 1,64 " in row for row in rows)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"text_config": _TEXT | {"moe_intermediate_size": 40}}, "two widths"),
        ({"text_config": _TEXT | {"use_bias": True}}, "use_bias"),
        ({"vision_config": _VISION | {"rms_norm_eps": 1e-5}}, "must be 1e-06"),
        ({"image_end_token_id": _IMAGE}, "must be three tokens, they are 3, 5 and 3"),
        ({"image_start_token_id": _END}, "must be three tokens, they are 3, 6 and 6"),
    ],
)
def test_refused_configurations(changes: dict[str, Any], why: str) -> None:
    text_config = {"model_type": "ernie4_5_vl_moe_text"} | changes.get("text_config", _TEXT)
    with pytest.raises(ModelConfigError, match=why):
        Ernie45VlModel.from_config(CONFIG | changes | {"text_config": text_config})


def test_ends_are_items_beside_an_image(ernie: MediaTestModel) -> None:
    placed = _placed(ernie, [_START, *IMAGE, _END, 20, _START, 21], 1)
    assert [item.first_token for item in placed.media] == [1, 2, 11]
    with pytest.raises(EngineError, match="4098 media items; at most 4096") as refused:
        _placed(ernie, IMAGE * 1366, 1366)
    assert (refused.value.code, refused.value.param) == ("INVALID_ARGUMENT", "images")


def _placed(ernie: MediaTestModel, ids: Sequence[int], images: int) -> RenderedPrompt:
    front_ends = MediaFrontEnd.of(ModelSource.open(ernie.path))
    media = [PreparedMedia("image", *SQUARE)] * images
    return place_media(RenderedPrompt.of(ids), media, front_ends, lambda _: [])


def test_images_that_do_not_fit_are_refused(ernie: MediaTestModel) -> None:
    with (
        ernie.llm() as llm,
        pytest.raises(EngineError, match=r"patches must be \[24, 48\], got \[36, 48\]"),
    ):
        ernie.generate(llm, [IMAGE], [[(SQUARE[0], (1, 6, 4))]])
