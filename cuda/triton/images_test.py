"""Bars on what Triton has made of its kernels, and that launchers pass what they take."""

import json
import os
import re
from pathlib import Path

import pytest

OPS = Path(__file__).parents[1] / "ops"
ARCHITECTURES = ("sm_80", "sm_90")

# A block may have more only if it asks for it, which launchers do not.
MOST_SHARED_BYTES = 48 << 10

# Instructions that a specialization must have: 16 bytes of global memory for each lane at once, and
# a power of two by the unit for it.
BARS = {
    ("mix_streams", "f32_aligned"): ("LDG.E.128", "STG.E.128"),
    ("mix_streams", "bf16_aligned"): ("LDG.E.128", "STG.E.128"),
    ("mix_streams", "f16_aligned"): ("LDG.E.128", "STG.E.128"),
    ("stream_weights", "streams_4"): ("MUFU.EX2", "SHFL"),
    ("stream_weights", "streams_16"): ("MUFU.EX2", "SHFL"),
}


@pytest.fixture(scope="module")
def images() -> list[dict]:
    """The report of each."""
    paths = os.environ["PAGEMILL_TEST_TRITON_REPORTS"].split()
    return [image for path in paths for image in json.loads(Path(path).read_text("utf-8"))]


def test_every_kernel_has_images_for_every_architecture(images: list[dict]) -> None:
    compiled = {(image["kernel"], image["architecture"]) for image in images}
    kernels = {kernel for kernel, _ in BARS}
    assert compiled == {(kernel, name) for kernel in kernels for name in ARCHITECTURES}


def test_launchers_pass_the_parameters(images: list[dict]) -> None:
    for image in images:
        kernel = image["kernel"]
        launcher = (OPS / kernel / f"{kernel}.cc").read_text("utf-8")
        (passed,) = re.findall(rf'kKernel = {{"{kernel}", "(\w+)"}}', launcher)
        assert passed == image["parameters"]


def test_no_kernel_uses_local_memory_or_much_shared_memory(images: list[dict]) -> None:
    for image in images:
        local = [name for name in image["instructions"] if name.startswith(("LDL", "STL"))]
        assert not local, image["specialization"]
        assert image["shared_bytes"] <= MOST_SHARED_BYTES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("kernel", "specialization"), BARS)
def test_kernel_has_its_instructions(
    images: list[dict], kernel: str, specialization: str, architecture: str
) -> None:
    key = (kernel, specialization, architecture)
    names = ("kernel", "specialization", "architecture")
    (image,) = [image for image in images if tuple(image[name] for name in names) == key]
    for prefix in BARS[kernel, specialization]:
        assert any(name.startswith(prefix) for name in image["instructions"]), prefix
