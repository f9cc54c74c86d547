// File: cuda/internal/hip_matrix_cores.h
// The words of cuda/gpu_matrix_cores.h, for clang's HIP. Include that header.
//
// Source: "AMD Instinct MI300 Instruction Set Architecture" and those of RDNA 3 and RDNA 4, and for
// places of elements AMD's matrix instruction calculator. The order of K does not matter, if it is
// the same for A and B.
#ifndef PAGEMILL_CUDA_INTERNAL_HIP_MATRIX_CORES_H_
#define PAGEMILL_CUDA_INTERNAL_HIP_MATRIX_CORES_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx90a__) && !defined(__gfx942__) && \
    !defined(__gfx950__) && !defined(__GFX11__) && !defined(__GFX12__)
#error "say here which instructions for products of matrices this GPU has"
#endif

namespace pagemill::gpu {
namespace internal {

template <typename T, int kCount>
using Registers __attribute__((ext_vector_type(kCount))) = T;

template <int kCount>
PAGEMILL_DEVICE void Store(const Registers<float, kCount>& from, float (&to)[kCount]) {
  PAGEMILL_UNROLL
  for (int i = 0; i < kCount; ++i) to[i] = from[i];
}

// Four numbers in e4m3 as the instructions of gfx942 have them: bits stand for half of the number
// there, those of -0 for NaN, and those of NaN for a number.
constexpr uint32_t ToFnuz(uint32_t quad) {
  constexpr uint32_t kMagnitudes = 0x7f7f7f7fu, kOnes = 0x01010101u;
  const uint32_t magnitudes = quad & kMagnitudes;
  const uint32_t without_zeros = quad & ((magnitudes + kMagnitudes) | kMagnitudes);
  const uint32_t nan = (magnitudes + kOnes) & ~kMagnitudes;  // the highest bit of each
  return (without_zeros | nan) & ~(nan - (nan >> 7));
}
static_assert(ToFnuz(0x80ff0180u) == 0x00800100u);
static_assert(ToFnuz(0x7ffe7e00u) == 0x80fe7e00u);

#if defined(__GFX11__)
// All 16 columns of a row: gfx11 wants them in both lanes that share it.
PAGEMILL_DEVICE Registers<uint32_t, 8> WithOtherPart(const uint32_t (&own)[4]) {
  Registers<uint32_t, 8> row;
  const bool is_first = Lane() < 16;
  PAGEMILL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t other = __builtin_amdgcn_permlanex16(own[i], own[i], 0x76543210u, 0xfedcba98u,
                                                        /*fetch_inactive=*/false,
                                                        /*bound_control=*/true);
    row[i] = is_first ? own[i] : other;
    row[i + 4] = is_first ? other : own[i];
  }
  return row;
}
#endif

}  // namespace internal

template <int kLanes>
struct MatrixCores;

template <>
struct MatrixCores<64> : MatrixCoreShape<64> {
  using Sums = internal::Registers<float, 4>;
  static constexpr bool kDoublesFactors = false;

  PAGEMILL_DEVICE static int RowOfSum(int i) { return Lane() / 16 * kSums + i; }

  PAGEMILL_DEVICE static void Multiply([[maybe_unused]] const uint32_t (&a)[4],
                                       [[maybe_unused]] const uint32_t (&b)[4],
                                       [[maybe_unused]] float (&sums)[kSums]) {
#if defined(__gfx950__)
    using Factors = internal::Registers<__bf16, 8>;
    Sums c = __builtin_bit_cast(Sums, sums);
    c = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(Factors, a),
                                                __builtin_bit_cast(Factors, b), c, 0, 0, 0);
    internal::Store(c, sums);
#elif defined(__gfx90a__) || defined(__gfx942__)
    // They have it for half of K.
    using Factors = internal::Registers<short, 4>;
    struct Halves {
      Factors of[2];
    };
    const auto of_a = __builtin_bit_cast(Halves, a), of_b = __builtin_bit_cast(Halves, b);
    Sums c = __builtin_bit_cast(Sums, sums);
    PAGEMILL_UNROLL
    for (int half = 0; half < 2; ++half) {
      c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(of_a.of[half], of_b.of[half], c, 0, 0, 0);
    }
    internal::Store(c, sums);
#else
    __builtin_trap();
#endif
  }

  PAGEMILL_DEVICE static void Multiply([[maybe_unused]] const uint32_t (&a)[2],
                                       [[maybe_unused]] const uint32_t (&b)[2],
                                       [[maybe_unused]] float (&sums)[kSums]) {
#if defined(__gfx942__) || defined(__gfx950__)
#if defined(__gfx942__)
    using internal::ToFnuz;
    const uint32_t of_a[2] = {ToFnuz(a[0]), ToFnuz(a[1])}, of_b[2] = {ToFnuz(b[0]), ToFnuz(b[1])};
#else
    const auto &of_a = a, &of_b = b;
#endif
    Sums c = __builtin_bit_cast(Sums, sums);
    c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, of_a),
                                                   __builtin_bit_cast(long, of_b), c, 0, 0, 0);
    internal::Store(c, sums);
#else
    __builtin_trap();
#endif
  }

  PAGEMILL_DEVICE static float Float8Unit() {
#if defined(__gfx942__)
    return 4;
#else
    return 1;
#endif
  }
};

template <>
struct MatrixCores<32> : MatrixCoreShape<32> {
  using Sums = internal::Registers<float, 8>;
#if defined(__GFX11__)
  static constexpr bool kDoublesFactors = true;
#else
  static constexpr bool kDoublesFactors = false;
#endif

  PAGEMILL_DEVICE static int RowOfSum(int i) {
#if defined(__GFX11__)
    return kParts * i + Lane() / 16;
#else
    return Lane() / 16 * kSums + i;
#endif
  }

  PAGEMILL_DEVICE static void Multiply([[maybe_unused]] const uint32_t (&a)[4],
                                       [[maybe_unused]] const uint32_t (&b)[4],
                                       [[maybe_unused]] float (&sums)[kSums]) {
#if defined(__GFX11__)
    using Factors = internal::Registers<short, 16>;
    Sums c = __builtin_bit_cast(Sums, sums);
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
        __builtin_bit_cast(Factors, internal::WithOtherPart(a)),
        __builtin_bit_cast(Factors, internal::WithOtherPart(b)), c);
    internal::Store(c, sums);
#elif defined(__GFX12__)
    using Factors = internal::Registers<short, 8>;
    Sums c = __builtin_bit_cast(Sums, sums);
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(Factors, a),
                                                          __builtin_bit_cast(Factors, b), c);
    internal::Store(c, sums);
#else
    __builtin_trap();
#endif
  }

  PAGEMILL_DEVICE static void Multiply([[maybe_unused]] const uint32_t (&a)[2],
                                       [[maybe_unused]] const uint32_t (&b)[2],
                                       [[maybe_unused]] float (&sums)[kSums]) {
#if defined(__GFX12__)
    using Factors = internal::Registers<int, 2>;
    Sums c = __builtin_bit_cast(Sums, sums);
    c = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(__builtin_bit_cast(Factors, a),
                                                             __builtin_bit_cast(Factors, b), c);
    internal::Store(c, sums);
#else
    __builtin_trap();
#endif
  }

  PAGEMILL_DEVICE static float Float8Unit() { return 1; }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_INTERNAL_HIP_MATRIX_CORES_H_
