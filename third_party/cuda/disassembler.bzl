"""Repository: NVIDIA's disassembler of GPU programs, which the toolkit's compiler does not need.

    @cuda_disassembler//:cuobjdump, :nvdisasm    programs for x86-64 Linux, without the mode bit

Fetched only when a target that depends on it is built.
"""

load("//tools/bazel:model_files.bzl", "model_files")

_VERSION = "13.5.37"  # reads what the compilers of CUDA 13.0 write, too

def cuda_disassembler(name):
    """Declares the repository.

    Args:
      name: of the repository.
    """
    model_files(
        name = name,
        members = {program: ["nvidia/cu13/bin/" + program] for program in ["cuobjdump", "nvdisasm"]},
        packages = [
            "nvidia-cuda-cuobjdump==" + _VERSION,
            "nvidia-cuda-nvdisasm==" + _VERSION,
        ],
        sha256 = {
            "cuobjdump": "3bb1c6707df6df0bfeb9621aafb841fa203cd5a2a4840288197fe9d4338026f1",
            "nvdisasm": "3bf19e7ab706ed8f68ecc2403d277b97dc110c52e0ac4c4f0c8eada5f7889c3c",
        },
    )
