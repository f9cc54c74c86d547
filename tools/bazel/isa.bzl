"""Compiler flags of each instruction set that kernels are written for."""

# x86-64-v3 has AVX2, FMA and F16C; v4 has AVX-512 F, BW, CD, DQ and VL.
_AVX512 = [
    "-march=x86-64-v4",
    "-mprefer-vector-width=512",
    # GCC 12 warns about undefined operands inside its own intrinsics.
    "-Wno-uninitialized",
    "-Wno-maybe-uninitialized",
]

# Name -> (CPU, flags). "portable" is the baseline of every CPU.
ISAS = {
    "amx": ("x86_64", _AVX512 + [
        "-mamx-bf16",
        "-mamx-int8",
        "-mamx-tile",
        "-mavx512bf16",
        "-mavx512vnni",
    ]),
    "asimd_bf16": ("aarch64", ["-march=armv8.2-a+bf16+dotprod"]),
    "asimd_dotprod": ("aarch64", ["-march=armv8.2-a+dotprod"]),
    "asimd_i8mm": ("aarch64", ["-march=armv8.2-a+bf16+dotprod+i8mm"]),
    "avx2": ("x86_64", ["-march=x86-64-v3"]),
    "avx_vnni": ("x86_64", ["-march=x86-64-v3", "-mavxvnni"]),
    "avx512": ("x86_64", _AVX512),
    "avx512_bf16": ("x86_64", _AVX512 + ["-mavx512bf16", "-mavx512vnni"]),
    "avx512_vnni": ("x86_64", _AVX512 + ["-mavx512vnni"]),
    "portable": ("", []),
    "sve": ("aarch64", ["-march=armv8.2-a+sve+bf16+dotprod"]),
    "vxe": ("s390x", ["-march=z14", "-mzvector"]),
}

# Kernels are optimized in every compilation mode but debug; `#pragma omp simd` states which
# reductions may be reordered, so that no kernel needs -ffast-math.
KERNEL_COPTS = ["-O3", "-fno-math-errno", "-fopenmp-simd"]
