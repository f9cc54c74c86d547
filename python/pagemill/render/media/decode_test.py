"""Files to pixels, and what is refused before it is decoded."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.media.data_url import data_of
from pagemill.render.media.decode import FORMATS, ImageLimits, decoded
from pagemill.render.media.jpeg_markers import MAX_METADATA
from pagemill.render.media.stoppable_file import MAX_READS
from pagemill.render.testing.pictures import picture
from pagemill.render.testing.stops import LateStop

LIMITS = ImageLimits(max_bytes=2**20, max_pixels=10_000)


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The file that holds `image`."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
def test_formats(kind: str) -> None:
    image = decoded(file_of(picture(20, 10), kind), LIMITS)
    assert image.mode == "RGB" and image.size == (20, 10)


def test_lossless_file_is_its_pixels() -> None:
    image = picture(20, 10)
    assert np.array_equal(decoded(file_of(image), LIMITS), image)


@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16", "CMYK"])
def test_other_modes_become_colors(mode: str) -> None:
    kind = "JPEG" if mode == "CMYK" else "PNG"
    image = Image.new(mode, (4, 4)) if mode == "I;16" else picture(4, 4).convert(mode)
    assert decoded(file_of(image, kind), LIMITS).mode == "RGB"


def test_what_is_transparent_is_white() -> None:
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    image.putpixel((1, 0), (10, 20, 30, 0))
    pixels = np.asarray(decoded(file_of(image), LIMITS))
    assert pixels.tolist() == [[[10, 20, 30], [255, 255, 255]]]


def test_what_is_transparent_may_have_another_color() -> None:
    image = Image.new("RGBA", (1, 1), (10, 20, 30, 0))
    pixels = np.asarray(decoded(file_of(image), LIMITS, (1, 2, 3)))
    assert pixels.tolist() == [[[1, 2, 3]]]


def test_rotated_photographs_are_upright() -> None:
    image = picture(20, 10)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turned by 90 degrees
    assert decoded(file_of(image, "JPEG", exif=exif), LIMITS).size == (10, 20)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be decoded"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "cannot be decoded"),
        (file_of(picture(50, 50))[:-2000], "cannot be decoded"),
        (file_of(picture(4, 4), "TIFF"), "PNG, JPEG, WEBP, GIF"),
        (file_of(picture(101, 100)), "101 x 100 pixels; at most 10000"),
    ],
)
def test_files_that_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(RenderError, match=why):
        decoded(data, LIMITS)


def test_bomb_is_refused_before_it_is_decoded() -> None:
    bomb = bytearray(file_of(Image.new("1", (8, 8))))
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2  # the header's width and height
    with pytest.raises(RenderError):
        decoded(bytes(bomb), LIMITS)


def scans_of(times: int) -> bytes:
    """A progressive JPEG file whose last scan is there so many times."""
    data = file_of(picture(16, 16), "JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")
    return data[:at] + data[at:-2] * times + data[-2:]


def test_jpeg_files_of_many_scans_are_refused() -> None:
    """Each takes time for each pixel."""
    assert decoded(scans_of(150), LIMITS).size == (16, 16)
    with pytest.raises(RenderError, match="more than 200 scans"):
        decoded(scans_of(200), LIMITS)


@pytest.mark.parametrize("junk", [b"\xff", b"\xff\x01", b"\xff\xd8", b"x", b"\xff\xf0" + bytes(99)])
def test_jpeg_files_of_many_markers_are_refused(junk: bytes) -> None:
    """Pillow reads them one by one."""
    data = file_of(picture(8, 8), "JPEG")  # of which 20 bytes are the first segment
    with pytest.raises(RenderError, match="more than 262144 markers, or bytes between them"):
        decoded(data[:20] + junk * 2**19 + data[20:], LIMITS)
    assert decoded(data + junk * 2**19, LIMITS) == decoded(data, LIMITS), "it has ended before"


def png_of(chunks: bytes) -> bytes:
    """A PNG file with `chunks` before its pixels."""
    data = file_of(picture(8, 8))
    return data[:33] + chunks + data[33:]


def chunk(kind: bytes, content: bytes) -> bytes:
    crc = zlib.crc32(kind + content)
    return struct.pack(">I4s", len(content), kind) + content + struct.pack(">I", crc)


@pytest.mark.parametrize(
    ("data", "least"),
    [
        (file_of(picture(100, 100).resize((1600, 1600)), "PNG", compress_level=0), 100),
        (file_of(picture(1600, 1600).convert("RGBA")), 3),  # is converted in bands
        (file_of(Image.effect_noise((2000, 2000), 99).convert("P"), "GIF"), 10),
        (file_of(Image.effect_noise((1600, 1600), 99), "JPEG", quality=99), 10),
        (scans_of(150), 3),
        (png_of(chunk(b"abCd", b"") * 1000), 1000),
    ],
    ids=["png", "bands", "gif", "jpeg", "scans", "chunks"],
)
def test_decoding_ends_with_its_request(data: bytes, least: int) -> None:
    whole = LateStop()
    decoded(data, ImageLimits(2**24, 2**24), stop=whole)
    assert whole.asked >= least
    for at in (0, whole.asked // 2):
        stop = LateStop(at)
        with pytest.raises(RenderError):
            decoded(data, ImageLimits(2**24, 2**24), stop=stop)
        assert stop.asked - at < 20, "it reads on"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("size", [(1025, 1030), (65_000, 17)])
def test_large_images_are_converted_in_bands(mode: str, size: tuple[int, int]) -> None:
    kind = "JPEG" if mode == "CMYK" else "PNG"
    image = Image.effect_noise((97, 55), 99)
    if mode in ("RGBA", "LA"):
        image = Image.merge(mode, [image.rotate(each) for each in range(len(mode))])
    image = image.convert(mode).resize(size)
    options = {"transparency": (7, 7, 7) if mode == "RGB" else 7} if mode in ("P", "RGB") else {}
    found = decoded(file_of(image, kind, compress_level=1, **options), ImageLimits(2**26, 2**26))
    with Image.open(io.BytesIO(file_of(image, kind, compress_level=1, **options))) as opened:
        expected = opened.convert("RGBA")
    expected = Image.alpha_composite(Image.new("RGBA", size, (255, 255, 255, 255)), expected)
    assert np.array_equal(found, expected.convert("RGB"))


def test_files_of_many_small_parts_are_refused() -> None:
    """Pillow reads twice for each."""
    with pytest.raises(RenderError, match="too many small parts"):
        decoded(png_of(chunk(b"abCd", b"") * (MAX_READS // 2)), LIMITS)


def test_jpeg_files_of_much_metadata_are_refused() -> None:
    """Pillow appends each segment of EXIF to those before it, of which it makes a copy."""
    data = file_of(picture(8, 8), "JPEG")
    segment = b"\xff\xe1\0\x0aExif\0\0ab"
    assert decoded(data[:2] + segment * MAX_METADATA + data[2:], LIMITS).size == (8, 8)
    with pytest.raises(RenderError, match="more than 320 segments of EXIF"):
        decoded(data[:2] + segment * (MAX_METADATA + 1) + data[2:], LIMITS)


def test_data_urls() -> None:
    url = "data:image/png;base64," + base64.b64encode(b"abc").decode()
    assert data_of(url, 3) == b"abc"
    for bad, why in (
        ("data:image/png,abc", "must be data:"),
        ("data:image/png;base64", "must be data:"),
        ("data:image/png;base64,a*b=", "does not hold base64"),
        (url, "larger than 2 bytes"),
        ("data:;base64," + "A" * 1000, "larger than 2 bytes"),
    ):
        with pytest.raises(RenderError, match=why):
            data_of(bad, 2)


def test_large_data_urls() -> None:
    data = bytes(range(256)) * 4096
    text = base64.b64encode(data).decode()
    assert data_of(f"data:;base64,{text}", len(data)) == data
    for at in range(2**18 - 5, 2**18 + 1):  # padding belongs at the end
        for padding in ("=", "=="):
            padded = text[:at] + padding + text[at + len(padding) :]
            with pytest.raises(RenderError, match="does not hold base64"):
                data_of(f"data:;base64,{padded}", len(data))
