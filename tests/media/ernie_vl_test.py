"""Images of ERNIE 4.5 VL through the engine: its tokens are those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pagemill.engine.media import MediaFrontEnd, place_media
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.ernie4_5_vl import Ernie45VlModel
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.media.ernie_vl_models import (
    CONFIG,
    IMAGE,
    IMAGE_END,
    IMAGE_START,
    IMAGE_TOKEN,
    TEXT,
    VISION,
    ernie_vl,
    image,
)
from tests.media.media_model import MediaTestModel, encoded, media_prompts, text

# What the template of published checkpoints writes for an image.
_TEMPLATE = (
    "{% for part in messages[0].content %}{% if part.type == 'image' %}"
    "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}"
)
SQUARE, WIDE, LARGE = image(1, 6, 6), image(2, 4, 10), image(5, 14, 16)


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
    squares, wides = (
        [IMAGE_START, *[IMAGE_TOKEN] * 9, IMAGE_END],
        [IMAGE_START, *[IMAGE_TOKEN] * 10, IMAGE_END],
    )
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
    assert output.prompt_token_ids == [IMAGE_START, *[IMAGE_TOKEN] * 10, IMAGE_END, 20]


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
    encoder, _ = build(ModelSource.open(ernie.path), BuildOptions()).encoders
    rows = [line for line in encoder.program_text.splitlines() if "weight model.embed" in line]
    assert len(rows) == 2 and all(" 1,64 " in row for row in rows)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"text_config": TEXT | {"moe_intermediate_size": 40}}, "two widths"),
        ({"text_config": TEXT | {"use_bias": True}}, "use_bias"),
        ({"vision_config": VISION | {"rms_norm_eps": 1e-5}}, "must be 1e-06"),
        ({"image_end_token_id": IMAGE_TOKEN}, "must be six tokens, they are 3, 5, 3, 4, 7, 8"),
        ({"image_start_token_id": IMAGE_END}, "must be six tokens, they are 3, 6, 6, 4, 7, 8"),
    ],
)
def test_refused_configurations(changes: dict[str, Any], why: str) -> None:
    text_config = {"model_type": "ernie4_5_vl_moe_text"} | changes.get("text_config", TEXT)
    with pytest.raises(ModelConfigError, match=why):
        Ernie45VlModel.from_config(CONFIG | changes | {"text_config": text_config})


def test_ends_are_items_beside_an_image(ernie: MediaTestModel) -> None:
    placed = _placed(ernie, [IMAGE_START, *IMAGE, IMAGE_END, 20, IMAGE_START, 21], 1)
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
