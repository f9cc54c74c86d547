"""Images of Gemma 4 through the engine: the tokens of an image may see each other in windowed
layers, and what is generated is that of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.encoder import MediaSizes
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.errors import MissingTensorError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.media.gemma4_models import (
    END,
    KINDS,
    PLACEHOLDER,
    SIDE,
    START,
    Gemma4TestModel,
    Patches,
    gemma4,
    image,
    inputs,
)
from tests.media.media_model import MediaTestModel, encoded, media_prompts, text
from tests.parity.tiny_models import save

IMAGE = [PLACEHOLDER]


def tokens(patches: Patches) -> int:
    return len(patches[0]) // SIDE**2


@pytest.fixture(scope="module", params=KINDS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Gemma4TestModel:
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    return Gemma4TestModel(path, save(gemma4(request.param), path))


ONE, OTHER, LONG = image(1, 6, 6), image(2, 3, 9), image(3, 3, 36)
PROMPTS = [
    *media_prompts(IMAGE),
    text(6, 20) + IMAGE,
]
IMAGES = [[ONE, OTHER], [LONG], [], [ONE]]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_images(model: Gemma4TestModel, executor: str) -> None:
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            assert output.prompt_token_ids.count(PLACEHOLDER) == sum(map(tokens, own))
            model.check(output, own)
        assert encoded(llm) == 3, "equal images are encoded once"


@pytest.mark.parametrize("step", [12, 16])
def test_small_steps(model: Gemma4TestModel, step: int) -> None:
    prompts = [text(1, 8) + IMAGE + text(2, 3) + IMAGE + text(3, 20), *PROMPTS]
    images = [[ONE, OTHER], *IMAGES]
    model.check_all(prompts, images, max_num_batched_tokens=step)


def test_prefixes_are_those_of_equal_images(model: Gemma4TestModel) -> None:
    prompt = text(1, 11) + IMAGE + text(2, 20)
    with model.llm() as llm:
        cached = []
        for own in (ONE, image(7, 6, 6), ONE):
            (output,) = model.generate(llm, [prompt], [[own]], logprobs=0)
            model.check(output, [own])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 32]


def test_windowed_layers_alone_read_where_an_image_ends(model: Gemma4TestModel) -> None:
    """Also one that attends to what an earlier layer has stored, which no other token shows."""
    text = build(ModelSource.open(model.path), BuildOptions()).program_text
    sees = "item_ends i32" in text
    assert sees == (model.transformer.config.text_config.use_bidirectional_attention == "vision")
    assert text.count("item_ends=1") == (3 if sees else 0)


def test_an_image_has_tokens_around_it(model: Gemma4TestModel) -> None:
    with model.llm() as llm:
        (output,) = model.generate(llm, [[20, *IMAGE, 21]], [[OTHER]])
    assert output.prompt_token_ids == [20, START, *IMAGE * 3, END, 21]


def test_the_encoder_is_that_of_transformers(model: Gemma4TestModel) -> None:
    """Each image alone: a place has a column and a row of more than one digit."""
    (encoder,) = build(ModelSource.open(model.path), BuildOptions()).encoders
    assert encoder.features is not None
    executor = TorchExecutor(encoder.program_text, TorchOptions())
    for own in (ONE, LONG, image(4, 39, 3)):
        item = encoder.features(PreparedMedia("image", *own))
        assert item.positions is not None
        count = np.arange(len(item.rows), dtype=np.int32)
        batch = {
            "token_ids": count * 0,
            "positions": count,
            "query_start": np.array([0, len(count)], np.int32),
            "seq_lens": np.array([len(count)], np.int32),
            "logits_rows": count[:0],
            "media_rows": count[:: SIDE**2],
            "grid_positions": item.positions.rows,
            "kv": [],
            "inputs": {"features": item.rows},
        }
        with torch.inference_mode():
            found = model.transformer.model.get_image_features(**inputs([own])).pooler_output
        expected = torch.cat(list(found)).numpy()
        np.testing.assert_allclose(executor(batch)["embeddings"], expected, rtol=0, atol=2e-5)


def test_images_that_do_not_fit_are_refused(model: Gemma4TestModel) -> None:
    with model.llm() as llm:

        def refuse(message: str, *images: Any) -> None:
            model.check_refused(llm, IMAGE, images, message)

        refuse("an image of this model has a grid", ONE[0])
        refuse("two multiples of 3, got", (ONE[0], (1, 4, 9)))
        refuse(r"patches must be \[36, 48\], got \[27, 48\]", (ONE[0][:27], (1, 6, 6)))
        refuse("at most 96 patches in a row", image(1, 3, 99))


@pytest.mark.parametrize("step", [256, 8192])
def test_the_encoder_is_planned_for_the_largest_image(model: Gemma4TestModel, step: int) -> None:
    built = build(ModelSource.open(model.path), BuildOptions())
    config = build_config(EngineConfig, {"max_num_batched_tokens": step, "max_num_seqs": 4})
    sizes = MediaSizes.of(built, ExecutorSizes.of(built, config, "f32", None), config)
    assert sizes.encoders[0].encoder_tokens == 1120 * SIDE**2
    # Tokens that see each other are of one step.
    sees = built.encoders[0].traits.item_ends
    assert sizes.max_item_tokens == (min(step, 1120) if sees else 1120)


def test_bounds_are_checked(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save(gemma4("small"), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = "model.vision_tower.encoder.layers.1.mlp.up_proj.output_max"
    save_file({**tensors, name: torch.tensor(-1.0)}, file)
    with pytest.raises(ModelConfigError, match="up_proj.output_min and .* are -0.75 and -1"):
        build(ModelSource.open(tmp_path), BuildOptions())


def test_random_weights(model: Gemma4TestModel, tmp_path: Path) -> None:
    """Of a checkpoint of which only the configuration is there: bounds bound nothing."""
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((model.path / name).read_bytes())
    random = MediaTestModel(tmp_path, model.reference)
    with random.llm(load_format="dummy") as llm:
        (output,) = random.generate(llm, [IMAGE + text(1, 3)], [[ONE]])
    assert len(output.prompt_token_ids) == 9
    with random.llm(load_format="dummy", language_model_only=True) as llm:
        random.generate(llm, [text(1, 3)], [[]])


def test_text_alone(model: Gemma4TestModel) -> None:
    model.check_language_model_only("vision_tower", ONE)


def test_a_checkpoint_without_the_tower(model: Gemma4TestModel, tmp_path: Path) -> None:
    """Its configuration has one, whose bounds are not read."""
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    tensors = load_file(model.path / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "vision" not in name}
    save_file(kept, tmp_path / "model.safetensors")
    source = ModelSource.open(tmp_path)
    with pytest.raises(MissingTensorError, match="input_proj.*; --language-model-only serves text"):
        build(source, BuildOptions())
    text = build(source, BuildOptions(language_only=True))
    assert not text.encoders
    whole = build(ModelSource.open(model.path), BuildOptions(language_only=True))
    assert text.program_text.count("\nop ") == whole.program_text.count("\nop ")


def test_ranks_and_stages_of_text(model: Gemma4TestModel) -> None:
    model.check_divided()
