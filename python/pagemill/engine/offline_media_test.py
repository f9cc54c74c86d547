"""Images of an `LLM`: what they may be, where they stand in messages, and what is refused."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pagemill.config import MediaConfig
from pagemill.engine.offline_media import OfflineMedia
from pagemill.engine.outputs import EngineError
from pagemill.render.media import image_files

PIXELS = np.zeros((3, 4, 4), np.float32)


def picture(size: int = 8) -> Image.Image:
    """Noise."""
    values = np.random.default_rng(size).integers(0, 256, (size, size, 3), np.uint8)
    return Image.fromarray(values)


def file_of(image: Image.Image) -> bytes:
    """A PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def data_url(image: Image.Image) -> str:
    """The same as a data: URL."""
    return "data:image/png;base64," + base64.b64encode(file_of(image)).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = {"image_processor_type": "CLIPImageProcessor", "size": 4, "crop_size": 4}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    return tmp_path


def opened(folder: Path, **options: Any) -> OfflineMedia:
    """Those of a model with a processor in `folder`."""
    return OfflineMedia(MediaConfig(**options), folder, 16)


def test_files_urls_and_opened_images_are_the_same(folder: Path):
    path = folder / "cat.png"
    path.write_bytes(file_of(picture()))
    sources = [path, str(path), data_url(picture()), picture(), Image.open(path)]
    first, *others = opened(folder).all_prepared("image", sources)
    assert first.values.shape == (3, 4, 4)
    for other in others:
        np.testing.assert_array_equal(other.values, first.values)


def test_arrays_stay_as_they_are(folder: Path):
    grid = PIXELS[0], (1, 2, 2)
    none = OfflineMedia(MediaConfig(), folder, 0)
    pixels, patches = none.all_prepared("image", [PIXELS, grid])
    assert pixels.values is PIXELS and pixels.grid is None
    np.testing.assert_array_equal(patches.values, PIXELS[0])
    assert patches.grid == (1, 2, 2)
    with pytest.raises(EngineError, match="image 0: this model takes no images"):
        none.all_prepared("image", [picture()])


def test_equal_files_are_prepared_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    prepared: list[int] = []

    def process(image: Image.Image) -> np.ndarray:
        prepared.append(image.width)
        return PIXELS

    monkeypatch.setattr(image_files, "open_processor", lambda *_: process)
    images = opened(folder)
    for _ in range(2):
        images.all_prepared("image", [data_url(picture(8)), data_url(picture(9))])
    assert prepared == [8, 9]
    images.reset_cache()
    images.all_prepared("image", [data_url(picture(8))])
    assert prepared == [8, 9, 8]


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        ("nowhere.png", {}, "nowhere.png cannot be read: No such file"),
        ("preprocessor_config.json", {}, "cannot be decoded"),
        ("preprocessor_config.json", {"max_image_bytes": 1024}, "cannot be decoded"),
        ("large", {"max_image_bytes": 1024}, "large is larger than 1024 bytes"),
        ("https://images.example/cat.png", {}, "media are not fetched from images.example"),
        ("data:,x", {}, "a data: URL must be"),
        (picture(40), {"max_image_pixels": 1024}, "40 x 40 pixels; at most 1024"),
    ],
)
def test_refusals(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str | Image.Image,
    options: dict[str, Any],
    why: str,
):
    monkeypatch.chdir(folder)
    Path("large").write_bytes(bytes(2000))
    with pytest.raises(EngineError, match="image 1: .*" + re.escape(why)) as error:
        opened(folder, **options).all_prepared("image", [PIXELS, source])
    assert error.value.code == "INVALID_ARGUMENT"


def test_numbers_are_bounded(folder: Path):
    images = opened(folder, limit_mm_per_prompt={"image": 1})
    with pytest.raises(EngineError, match="2 images; at most 1"):
        images.all_prepared("image", [PIXELS, PIXELS])
    part = {"type": "image", "image": PIXELS}
    with pytest.raises(EngineError, match="2 images; at most 1"):
        images.of_messages([{"role": "user", "content": [part]}] * 2)


def test_parts_of_messages(folder: Path):
    url = data_url(picture())
    content = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": url}},
        "b",
        {"type": "image_pil", "image_pil": picture()},
        {"type": "image_url", "image_url": url},
        {"type": "image", "image": PIXELS},
    ]
    system = {"role": "system", "content": "c"}
    messages, images = opened(folder).of_messages([system, {"role": "user", "content": content}])
    bare = {"type": "image"}
    assert messages == [
        system,
        {"role": "user", "content": [content[0], bare, "b", bare, bare, bare]},
    ]
    assert len(images) == 4 and images[3].values is PIXELS
    np.testing.assert_array_equal(images[0].values, images[1].values)


@pytest.mark.parametrize("url", ["/etc/hostname", "file:///etc/hostname", None, {"url": 7}])
def test_urls_of_messages_are_no_files(folder: Path, url: Any):
    part = {"type": "image_url", "image_url": url}
    with pytest.raises(EngineError, match=r"messages\[0\].content\[0\]: image_url must be"):
        opened(folder).of_messages([{"role": "user", "content": [part]}])
