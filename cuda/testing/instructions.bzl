"""Which instructions kernels are compiled to, counted from the disassembly of their objects."""

load("//tools/bazel:requires.bzl", "has_tools", "requires")

# Lines `ARCHITECTURE KERNEL INSTRUCTION COUNT`. An instruction may follow a predicate: @P0, @!UP1.
_COUNT = """
/^\\tcode for / { architecture = $3 }
/Function : / { kernel = $3 }
/^ +\\/\\*[0-9a-f]+\\*\\/ / {
  instruction = $2 ~ /^@/ ? $3 : $2
  sub(/;$/, "", instruction)
  counts[architecture " " kernel " " instruction]++
}
END { for (key in counts) print key, counts[key] }
"""

def _instruction_counts_impl(ctx):
    counts = []
    for object in ctx.files.objects:
        out = ctx.actions.declare_file("{}/{}.txt".format(ctx.label.name, object.short_path))
        ctx.actions.run_shell(
            # The programs call each other, and have no mode bit.
            command = """set -euo pipefail
object="$1" count="$2" out="$3"; shift 3
programs="$(mktemp -d)"
trap 'rm -rf "$programs"' EXIT
cp "$@" "$programs"; chmod +x "$programs"/*
PATH="$programs:$PATH" cuobjdump --dump-sass "$object" | awk "$count" | LC_ALL=C sort > "$out"
""",
            arguments = [object.path, _COUNT, out.path] + [file.path for file in ctx.files.programs],
            inputs = [object] + ctx.files.programs,
            mnemonic = "CudaDisassemble",
            outputs = [out],
            use_default_shell_env = True,
        )
        counts.append(out)
    return [DefaultInfo(files = depset(counts))]

_instruction_counts = rule(
    implementation = _instruction_counts_impl,
    attrs = {
        "objects": attr.label_list(allow_files = [".o"]),
        "programs": attr.label_list(allow_files = True),
    },
)

# For `target_compatible_with`: the disassembler is for this CPU.
WITH_DISASSEMBLER = ["@platforms//cpu:x86_64"] + requires("nvcc")

def instruction_counts(name, objects):
    """A text file for each object: lines `ARCHITECTURE KERNEL INSTRUCTION COUNT`.

    Args:
      name: of the target.
      objects: cuda_objects.
    """
    programs = ["cuobjdump", "nvdisasm"]
    _instruction_counts(
        name = name,
        objects = objects,
        # Not fetched if the test is skipped.
        programs = ["@cuda_disassembler//:" + program for program in programs] if has_tools("nvcc") else [],
        target_compatible_with = WITH_DISASSEMBLER,
    )
