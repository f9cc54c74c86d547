"""Compiles a Triton kernel for one architecture, without a GPU: a C++ table of its images.

    compile_kernel.py --packages FILE --kernel mix_streams --architecture sm_90 --source OUT.cc
        --report OUT.json

The source defines `const std::span<const TritonImage> kImages_<kernel>_<architecture>`
(cuda/triton/image.h). The report has what tests check of each image.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# The architectures whose warps have 64 lanes; the others of AMD have 32.
WIDE_WARPS = ("gfx90a", "gfx942", "gfx950")

SOURCE = """\
// Compiled from cuda/triton/kernels/{kernel}.py.
#include <cstdint>
#include <span>

#include "cuda/triton/image.h"

namespace pagemill::gpu {{
namespace {{
{codes}
constexpr TritonImage kRows[] = {{{rows}}};
}}  // namespace

extern const std::span<const TritonImage> kImages_{kernel}_{architecture};
const std::span<const TritonImage> kImages_{kernel}_{architecture}{{kRows}};

}}  // namespace pagemill::gpu
"""

ROW = """
    {{.kernel = "{kernel}",
     .specialization = "{specialization}",
     .parameters = "{parameters}",
     .compute_major = {major},
     .compute_minor = {minor},
     .block = {block},
     .threads = {threads},
     .shared_bytes = {shared_bytes},
     .code = kCode_{specialization}}},"""


def compute_capability(architecture: str) -> tuple[int, int]:
    """Major and minor, as the runtime numbers them: sm_90 -> 9, 0; gfx942 -> 9, 4."""
    if architecture.startswith("sm_"):
        return divmod(int(architecture[3:]), 10)
    digits = architecture.removeprefix("gfx")  # major, then one digit each of minor and stepping
    return int(digits[:-2]), int(digits[-2], 16)


def words(code: bytes) -> str:
    """The bytes as numbers of 64 bits for C++, in the order of this machine."""
    padded = code + bytes(-len(code) % 8)
    numbers = memoryview(padded).cast("Q").tolist()
    return ",".join(f"{number:#x}" for number in numbers)


def instructions(cubin: bytes) -> dict[str, int]:
    """How often each machine instruction is in the code of an NVIDIA GPU."""
    import triton

    programs = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [programs / "cuobjdump", "--dump-sass", file.name],
            env={"PATH": f"{programs}:{os.defpath}"},  # it calls nvdisasm
            capture_output=True,
            text=True,
            check=True,
        )
    # An instruction follows its address and may follow a predicate: @P0, @!UP1.
    pattern = r"^ +/\*[0-9a-f]+\*/ +(?:@\S+ +)?([\w.]+)"
    return dict(sorted(Counter(re.findall(pattern, done.stdout, re.MULTILINE)).items()))


def compile_kernel(kernel: str, architecture: str) -> tuple[str, list[dict[str, object]]]:
    """The C++ source and the report."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from cuda.triton.specialization import ALIGNMENT

    module = importlib.import_module(f"cuda.triton.kernels.{kernel}")
    function = getattr(module, kernel)
    nvidia = architecture.startswith("sm_")
    lanes = 64 if architecture in WIDE_WARPS else 32
    target = (
        GPUTarget("cuda", int(architecture[3:]), lanes)
        if nvidia
        else GPUTarget("hip", architecture, lanes)
    )
    major, minor = compute_capability(architecture)
    codes, rows, report = [], [], []
    for name, specialization in module.SPECIALIZATIONS.items():
        constants = specialization.constants
        source = ASTSource(
            fn=function,
            signature=specialization.types | dict.fromkeys(constants, "constexpr"),
            constexprs=constants,
            attrs={
                (i,): [["tt.divisibility", ALIGNMENT]]
                for i, argument in enumerate(function.arg_names)
                if argument in specialization.aligned
            },
        )
        compiled = triton.compile(
            source, target=target, options={"num_warps": specialization.warps}
        )
        metadata = compiled.metadata
        if metadata.global_scratch_size or metadata.profile_scratch_size:
            sys.exit(f"{kernel} {name}: kernels that need scratch memory cannot be launched")
        code = compiled.asm["cubin" if nvidia else "hsaco"]
        image = {
            "kernel": kernel,
            "specialization": name,
            "parameters": specialization.parameters,
            "block": constants["BLOCK"],
            "threads": metadata.num_warps * lanes,
            "shared_bytes": metadata.shared,
        }
        if metadata.name != kernel:
            sys.exit(f"{kernel} {name}: its code is called {metadata.name}")
        codes.append(f"alignas(16) constexpr uint64_t kCode_{name}[] = {{{words(code)}}};")
        rows.append(ROW.format(**image, major=major, minor=minor))
        report.append(
            image
            | {"architecture": architecture, "code_bytes": len(code)}
            | ({"instructions": instructions(code)} if nvidia else {})
        )
    text = SOURCE.format(
        kernel=kernel, architecture=architecture, codes="\n".join(codes), rows="".join(rows)
    )
    return text, report


def main() -> None:
    """Writes both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="names the folder beside it")
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--architecture", required=True, help="sm_90 or gfx942")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    folder = args.packages.read_text(encoding="utf-8").strip()
    sys.path.insert(0, str(args.packages.resolve().with_name(folder)))
    # Code does not depend on where the sources are.
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        text, report = compile_kernel(args.kernel, args.architecture)
    args.source.write_text(text, encoding="utf-8")
    args.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
