"""TrOCR through the engine: an image's rows are the first tokens of a decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.vision_encoder_decoder import VisionEncoderDecoderModel
from pagemill.models.vision.swin_vision import places_of_rows, window_length, window_rows
from pagemill.runner.build import BuildOptions, build, model_shapes
from pagemill.weights.source import ModelSource

from tests.media.media_model import MediaTestModel, text
from tests.media.vision_encoder_decoder_models import (
    IMAGE,
    MODELS,
    POSITIONS,
    START,
    TOKENS,
    image,
    model,
)

BEGIN = [*IMAGE, START]


@pytest.fixture(scope="module")
def trocr(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return model(tmp_path_factory.mktemp("trocr"), "trocr")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(tmp_path: Path, name: str, executor: str) -> None:
    made = model(tmp_path, name)
    prompts = [BEGIN, BEGIN + text(2, 1), BEGIN + text(3, 17), BEGIN + text(4, 2)]
    images = [[image(seed, name)] for seed in (1, 2, 3, 1)]
    longest = TOKENS[name] + POSITIONS
    assert made.check_all(prompts, images, executor=executor, max_model_len=longest) == 3, (
        "equal images are encoded once"
    )


def test_ranks(trocr: MediaTestModel) -> None:
    """Rank 0 sees, both decode."""
    prompts = [BEGIN + text(1, 9), BEGIN + text(2, 3)]
    images = [[image(1)], [image(2)]]
    options = {"max_num_batched_tokens": 16, "max_model_len": TOKENS["trocr"] + POSITIONS}
    with trocr.llm(tensor_parallel_size=2, **options) as llm:
        for output, own in zip(trocr.generate(llm, prompts, images), images, strict=True):
            trocr.check(output, own)


def test_prefixes_are_those_of_equal_images(trocr: MediaTestModel) -> None:
    """KV of a block depends on the image."""
    first = BEGIN + text(1, 20)
    with trocr.llm(max_model_len=TOKENS["trocr"] + POSITIONS) as llm:
        cached: list[int] = []
        for own in (1, 2, 1):
            (output,) = trocr.generate(llm, [first], [[image(own)]])
            trocr.check(output, [image(own)])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 16]


def test_what_is_no_image_is_refused(trocr: MediaTestModel) -> None:
    with trocr.llm(max_model_len=TOKENS["trocr"] + POSITIONS) as llm:

        def refuse(message: str, prompt: list[int], *images: np.ndarray) -> None:
            trocr.check_refused(llm, prompt, images, message)

        refuse(r"A prompt of this model has one image, this one has 0\.$", text(1, 3))
        refuse(
            "begins with its image, of 10 tokens; .* begins at token 3",
            text(1, 3) + IMAGE,
            image(1),
        )
        refuse(r"has tokens behind its image\.$", IMAGE, image(1))
        refuse("has one image, this one has 2", IMAGE + IMAGE, image(1), image(2))
        refuse(r"an image must be \[3, 20, 20\], got \[3, 20, 19\]", BEGIN, image(1)[..., 1:])


@pytest.mark.parametrize("name", MODELS)
def test_tensors_are_known_without_files(tmp_path: Path, name: str) -> None:
    model(tmp_path, name)
    source = ModelSource.open(tmp_path)
    shapes = model_shapes(source, BuildOptions())
    stored = {tensor.name for tensor in source.tensors}
    untied = {"decoder.output_projection.weight", "decoder.lm_head.weight"}
    unread = ("pooler", "relative_position_index")
    read = {name for name in stored if not any(part in name for part in unread)}
    assert shapes.keys() - untied == read - untied


def test_ends_are_those_of_the_decoder(trocr: MediaTestModel) -> None:
    assert ModelSource.open(trocr.path).eos_token_ids == (2,)


def test_options_that_it_cannot_have(trocr: MediaTestModel) -> None:
    with pytest.raises(ModelConfigError, match="allow image in --limit-mm-per-prompt"):
        build(ModelSource.open(trocr.path), BuildOptions(refused_media=frozenset({"image"})))


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (
            "encoder",
            {"model_type": "swinv2"},
            "the encoder is of type 'swinv2', .* deit, donut-swin, vit",
        ),
        ("encoder", {"model_type": None}, "the encoder is of type .*, which is not supported"),
        ("encoder", {"image_size": [20, 40]}, "it must be that of a square"),
        ("encoder", {"num_attention_heads": 5}, "5 heads cannot share 36 features"),
        ("decoder", {"model_type": "gpt2"}, "the decoder is of type 'gpt2', .* trocr"),
        ("decoder", {"cross_attention_hidden_size": 40}, "vectors of the encoder have 36"),
        ("decoder", {"use_learned_position_embeddings": False, "d_model": 36}, "multiple of"),
        ("decoder", {"pad_token_id": 257}, "outside the vocabulary"),
        ("decoder", {"decoder_attention_heads": 5}, "d_model 48 is not a multiple"),
    ],
)
def test_refusals(part: str, changes: dict[str, Any], message: str) -> None:
    _refuse("trocr", part, changes, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": [32, 46]}, r"\[32, 46\] must be multiples of 4, which is patch_size 2"),
        ({"image_size": [32, 48, 48]}, "it must be a height and a width"),
        ({"image_size": [2**20, 2**20]}, "at most 524288 are supported"),
        ({"window_size": 9}, "the last stage has 8 rows or columns, and windows of 2 to 32"),
        ({"window_size": 1}, "window_size is 1"),
        ({"depths": [2, 2, 2]}, "depths and num_heads must have a number for each stage"),
        ({"depths": [2, 600]}, "depths has 602 layers; at most 512"),
        ({"depths": 2}, "depths must list 1 to 8 numbers, it is 2"),
        ({"depths": [2, True]}, "needs depths > 0"),
        ({"num_heads": [3, 5]}, "3 heads of stage 0 cannot share 20 features"),
        ({"mlp_ratio": 0.5}, "mlp_ratio from 1 to 64"),
        ({"use_absolute_embeddings": True}, "use_absolute_embeddings=True is not supported"),
    ],
)
def test_refusals_of_swin(changes: dict[str, Any], message: str) -> None:
    _refuse("donut", "encoder", changes, message)


def _refuse(name: str, part: str, changes: dict[str, Any], message: str) -> None:
    encoder, decoder = MODELS[name]()
    config = {"encoder": encoder.to_dict(), "decoder": decoder.to_dict()}
    config[part] |= changes
    with pytest.raises(ModelConfigError, match=message):
        VisionEncoderDecoderModel.from_config(config)


def test_windows_hold_each_vector_once() -> None:
    """Also those that reach beyond the image, above or below it; what is not seen is no vector, and
    zeros that fill up windows are seen only without a shift, or behind the image."""
    for grid, window, shift in (((8, 12), 4, 0), ((8, 12), 4, 2), ((7, 10), 3, 0), ((7, 10), 3, 1)):
        places, masked = window_rows(grid, window, shift)
        windows = places.reshape(-1, window_length(window))
        found = places[places >= 0]
        assert sorted(found) == list(range(grid[0] * grid[1]))
        assert not masked[places >= 0].any()
        np.testing.assert_array_equal(places[places_of_rows(places, grid)], range(len(found)))
        # What `transformers` has in its windows, with those of the shift that lie apart.
        filled = [-(-side // window) * window for side in grid]
        assert (~masked).sum() == filled[0] * filled[1]
        counts = [side // window + bool(shift) for side in filled]
        assert len(windows) == counts[0] * counts[1]
