"""Checks a device and measures it; implements `tools/gpu/check`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path

from pagemill.engine.device_libraries import installed_libraries

from tools.gpu.items import Item, Sizes, all_items
from tools.gpu.pack import Pack, PackError, unpack
from tools.gpu.results import PASSED, Results
from tools.gpu.running import Runner
from tools.gpu.table import table
from tools.gpu.tree import ROOT

_SIZES = Sizes()


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/gpu/check", description=__doc__)
    parser.add_argument("--pack", type=Path, default=ROOT / ".gpu_pack/pack.tar.xz")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "bench/results/gpu.json",
        help="results; those that are there are kept, and their items not run again [%(default)s]",
    )
    parser.add_argument("--budget-seconds", type=float, default=480.0, help="[%(default)s]")
    parser.add_argument("--only", default="*", help="patterns of names of items: tiny/*,limits/*")
    parser.add_argument("--again", action="store_true", help="run items that have results, too")
    parser.add_argument("--list", action="store_true", help="show the names of items")
    parser.add_argument("--device", default="cuda:0", help="as --device of pagemill names it")
    parser.add_argument("--torch-device", default="cuda", help="[%(default)s]")
    parser.add_argument("--jobs", type=int, default=8, help="items beside each other [%(default)s]")
    parser.add_argument("--work", type=Path, help="folder for checkpoints [one in memory]")
    parser.add_argument("--model", default=_SIZES.model, help="that is measured [%(default)s]")
    parser.add_argument("--experts-model", default=_SIZES.experts_model, help="[%(default)s]")
    parser.add_argument("--states-model", default=_SIZES.states_model, help="[%(default)s]")
    parser.add_argument("--latents-model", default=_SIZES.latents_model, help="[%(default)s]")
    parser.add_argument(
        "--offload-gib",
        type=float,
        default=_SIZES.offload_gib,
        help="of weights that stay in host memory in the last stage [%(default)s]",
    )
    parser.add_argument("--matrix", type=int, default=_SIZES.matrix, help="[%(default)s]")
    parser.add_argument("--context", type=int, default=_SIZES.context, help="[%(default)s]")
    parser.add_argument("--tokens", type=int, default=_SIZES.tokens, help="[%(default)s]")
    parser.add_argument("--batches", default=_SIZES.batches, help="[%(default)s]")
    parser.add_argument("--prompts", default=_SIZES.prompts, help="[%(default)s]")
    return parser.parse_args(arguments)


def _work_folder() -> str:
    """Where checkpoints have room: in memory, if there is twice as much as the largest takes."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2**35:
        return str(memory)
    return tempfile.gettempdir()


def _chosen(options: argparse.Namespace, pack: Pack, work: Path) -> list[Item]:
    """The items that `--only` names, and those that they need."""
    sizes = Sizes(
        model=options.model,
        experts_model=options.experts_model,
        states_model=options.states_model,
        latents_model=options.latents_model,
        offload_gib=options.offload_gib,
        matrix=options.matrix,
        context=options.context,
        tokens=options.tokens,
        batches=options.batches,
        prompts=options.prompts,
    )
    items = all_items(pack, work, options.device, options.torch_device, sizes)
    patterns = options.only.split(",")
    wanted = {item.name for item in items if any(fnmatch(item.name, each) for each in patterns)}
    for item in reversed(items):
        if item.name in wanted:
            wanted.update(item.needs)
    return [item for item in items if item.name in wanted]


def _to_repeat(items: list[Item], results: Results, again: bool) -> set[str]:
    """The names of items that run although they have results: their files are needed."""
    if again:
        return {item.name for item in items}
    left = [item for item in items if not item.leaves_files and not results.is_final(item.name)]
    stages, needs = {item.stage for item in left}, {name for item in left for name in item.needs}
    return {
        item.name
        for item in items
        if item.leaves_files and (item.stage in stages or item.name in needs)
    }


def check(options: argparse.Namespace, pack: Pack, work: Path, begun: float) -> int:
    """Run items; the exit status: 0 if all that ran passed."""
    items = _chosen(options, pack, work)
    if options.list:
        print("\n".join(item.name for item in items))
        return 0
    results = Results(options.output)
    results.forget(_to_repeat(items, results, options.again))
    paths = [str(ROOT / "python"), str(ROOT), str(pack.folder / "site")]
    libraries = {str(path.parent): None for path in installed_libraries("cuda")}
    runner = Runner(
        results,
        {
            "PYTHONPATH": os.pathsep.join(paths),
            "PAGEMILL_DEVICE_PLUGINS": str(pack.plugin),
            # For the conformance program, which has no Python to open them.
            "LD_LIBRARY_PATH": os.pathsep.join(
                [*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            ),
        },
        ROOT,
        begun + options.budget_seconds,
        options.jobs,
    )
    runner.run(items)
    text = table(results)
    options.output.with_suffix(".md").write_text(text)
    print(text)
    ran = [results.get(item.name) for item in items]
    return 0 if all(each is not None and each.status in (PASSED, "refused") for each in ran) else 1


def main(arguments: list[str]) -> int:
    """Run; the exit status."""
    begun = time.monotonic()
    options = parse(arguments)
    with tempfile.TemporaryDirectory(dir=options.work or _work_folder()) as name:
        work = Path(name)
        try:
            pack = unpack(options.pack, work / "pack")
        except PackError as error:
            print(f"tools/gpu/check: {error}", file=sys.stderr)
            return 2
        return check(options, pack, work, begun)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
