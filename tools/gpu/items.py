"""What a check runs: processes, in the order of their worth."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.gpu.pack import Pack

_REFERENCE_TOKENS = 200  # at most


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of what is measured. `matrix` of the device's limits; `offload_gib` of weights that stay in
    host memory; `context` of requests that decode `tokens` tokens; lists as their programs take
    them."""

    model: str = "llama-8b"
    experts_model: str = "qwen3-30b-quarter"
    states_model: str = "qwen3-next-dense"
    latents_model: str = "deepseek-v3-dense"
    offload_gib: float = 1.0
    matrix: int = 8192
    context: int = 1024
    tokens: int = 256
    batches: str = "1,64,256"
    prompts: str = "1024,2048,4096,8192,16384"


@dataclass(frozen=True, slots=True)
class Item:
    """A process: `name` is STAGE/WHAT; `limit_s` after which it is ended; `alone`: nothing else
    may run beside it, so that times mean something; `needs`: items without whose success this one
    is left out; `leaves_files`: later ones use what it writes; `is_timed`: it wants to know when it
    was started; `diagnosis`: a command that says more if it fails, if that is installed."""

    name: str
    command: tuple[str, ...]
    limit_s: int
    alone: bool = False
    needs: tuple[str, ...] = ()
    leaves_files: bool = False
    is_timed: bool = False
    diagnosis: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """Items of a stage run beside each other, unless they run alone."""
        return self.name.split("/")[0]


def all_items(pack: Pack, work: Path, device: str, torch_device: str, sizes: Sizes) -> list[Item]:
    """Everything there is to check; checkpoints and references go to the folder `work`."""
    return [
        Item("build/extension", _module("extension", str(pack.folder)), 300, leaves_files=True),
        *_conformance(pack),
        *_tiny(pack, device),
        *_anchors(work, device, torch_device, sizes),
    ]


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", f"tools.gpu.{name}", *arguments)


def _conformance(pack: Pack) -> Iterator[Item]:
    """An item for each check, so that one that breaks the device's context ends no other."""
    program = str(pack.folder / "plugin_conformance")
    command = [program, "--gtest_list_tests"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    suite = ""
    for line in listed.stdout.splitlines():
        if not line.startswith(" "):
            suite = line.strip()
            continue
        test = line.split("#")[0].strip()
        name = test.split("/")[0]
        chosen = (program, str(pack.plugin), f"--gtest_filter={suite}{test}")
        watched = ("compute-sanitizer", "--print-limit=5", *chosen)
        yield Item(f"conformance/{name}", chosen, 180, diagnosis=watched)


def _tiny(pack: Pack, device: str) -> Iterator[Item]:
    for dtype in ("f32", "bf16"):
        for name in pack.tiny:
            folder = str(pack.folder / "tiny" / name)
            command = _module("tiny", folder, device, dtype)
            yield Item(f"tiny/{name}/{dtype}", command, 60, needs=("build/extension",))


def _anchors(work: Path, device: str, torch_device: str, sizes: Sizes) -> Iterator[Item]:
    """Parity of a large model, and what it is measured for."""
    yield Item("limits/device", _module("limits", torch_device, str(sizes.matrix)), 90, alone=True)
    small = str(work / "one-layer")
    written = _module("checkpoints", "one-layer", "bf16", small)
    yield Item("host/checkpoint", written, 60, leaves_files=True)
    yield Item(
        "host/steps",
        _module("host_work", small, device, sizes.batches, str(sizes.tokens)),
        60,
        alone=True,
        needs=("build/extension", "host/checkpoint"),
    )
    flags = ("--context", str(sizes.context), "--tokens", str(sizes.tokens))
    flags += ("--batches", sizes.batches, "--prompts", sizes.prompts)
    tokens = min(_REFERENCE_TOKENS, *map(int, sizes.prompts.split(",")))
    folder = str(work / "checkpoint")  # of one stage after the other: there is no room for all
    offload = ("--cpu-offload-gb", str(sizes.offload_gib))
    for stage, model, weights, own in (
        ("bf16", sizes.model, "bf16", ()),
        ("fp8", sizes.model, "fp8", ()),
        ("awq", sizes.model, "awq", ()),
        ("experts", sizes.experts_model, "bf16", ()),
        ("states", sizes.states_model, "bf16", ()),
        ("latents", sizes.latents_model, "bf16", ()),
        ("nvfp4", sizes.model, "nvfp4", ()),
        ("experts-fp8", sizes.experts_model, "fp8", ()),
        ("offload", sizes.model, "bf16", offload),
    ):
        made = f"{stage}/checkpoint"
        written = _module("checkpoints", model, weights, folder)
        yield Item(made, written, 90, alone=True, leaves_files=True)
        needs = ("build/extension", made)
        if model == sizes.model and weights == "bf16":
            # torch would turn others into floats number by number.
            yield Item(
                f"{stage}/reference",
                _module("large_reference", folder, torch_device, str(tokens)),
                120,
                alone=True,
                needs=needs,
                leaves_files=True,
            )
        yield Item(
            f"{stage}/anchors",
            _module("anchors", folder, device, *flags, *own),
            240,
            alone=True,
            needs=needs,
            is_timed=True,
        )
