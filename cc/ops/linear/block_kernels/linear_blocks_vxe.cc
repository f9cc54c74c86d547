// `linear` with block-format weights in slices (packed_blocks.h) and activations quantized to
// integers (quantized_activations.h), multiplied by VMALE and VMALO, which add products of the even
// or the odd bytes of a register to 8 halfwords.
//
// A halfword adds one product of a quad's even, or odd, 2 elements, so it takes j quads exactly
// while j * 127 * (2^bits - 1) < 2^15:
//
//   4 bits: 8 quads, 15240     5 bits: 8 quads, 31496     6 bits: 4 quads, 32004
//
// and 8 bits: 2 quads, 2 * 127 * 128 = 32512, since they are without their zero point, as signed
// bytes. Then VMALEH and VMALOH by ones add the halfwords of a lane to its 32 bits.
#include <vecintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

using Bytes = __vector signed char;
using Halfwords = __vector signed short;
using Words = __vector signed int;
using Floats = __vector float;

constexpr int kVectors = 4;  // of 4 weight rows: a half of a slice's rows
constexpr int kHalves = 2;

template <DType kDType>
constexpr int kQuadsOfHalfwords = kValueBits<kDType> == 8   ? 2
                                  : kValueBits<kDType> == 6 ? 4
                                                            : 8;

PAGEMILL_INLINE Bytes Load(const uint8_t* from) {
  Bytes v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

PAGEMILL_INLINE Bytes Splat(int byte) { return vec_splats(static_cast<signed char>(byte)); }

// Reads a little-endian f16 of a slice.
PAGEMILL_INLINE float F16At(const uint8_t* from) {
  const uint32_t bits = static_cast<uint32_t>(from[0] | from[1] << 8);
  const uint32_t magnitude = (bits & 0x7fff) << 13;
  // The exponent bias of a float is larger by 112; subnormal numbers are converted correctly, too.
  const bool is_finite = (bits & 0x7c00) != 0x7c00;
  const float value = is_finite ? __builtin_bit_cast(float, magnitude) * 0x1p112f
                                : __builtin_bit_cast(float, magnitude | 0x7f800000);
  return (bits & 0x8000) != 0 ? -value : value;
}

PAGEMILL_INLINE Floats LoadF16(const uint8_t* from) {
  return Floats{F16At(from), F16At(from + 2), F16At(from + 4), F16At(from + 6)};
}

PAGEMILL_INLINE Floats LoadBf16(const uint8_t* from) {
  const auto at = [&](int i) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(from[i] | from[i + 1] << 8) << 16);
  };
  return Floats{at(0), at(2), at(4), at(6)};
}

// Values of one half of the rows of a record, by quad, and the scales of their sums.
struct Weights {
  Bytes values[kQuads][kVectors];
  Floats scale[kVectors];
  Floats second_scale[kVectors];
  Floats minimum[kVectors];
  Words half_scales[2][kVectors];

  PAGEMILL_INLINE static void F16s(const uint8_t* from, Floats (&out)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) out[v] = LoadF16(from + 8 * v);
  }
  PAGEMILL_INLINE static void Bf16s(const uint8_t* from, Floats (&out)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) out[v] = LoadBf16(from + 8 * v);
  }
  PAGEMILL_INLINE static void Products(const uint8_t* head, const uint8_t* bytes,
                                       Floats (&out)[kVectors]) {
    for (int v = 0; v < kVectors; ++v, bytes += 4) {
      const Floats factors = {static_cast<float>(bytes[0]), static_cast<float>(bytes[1]),
                              static_cast<float>(bytes[2]), static_cast<float>(bytes[3])};
      out[v] = LoadF16(head + 8 * v) * factors;
    }
  }
  PAGEMILL_INLINE static void Integers(const uint8_t* from, Words (&out)[kVectors]) {
    const auto byte = [&](int i) { return static_cast<int32_t>(static_cast<int8_t>(from[i])); };
    for (int v = 0; v < kVectors; ++v, from += 4) {
      out[v] = Words{byte(0), byte(1), byte(2), byte(3)};
    }
  }
};

PAGEMILL_INLINE Bytes ShiftRight(Bytes v, int bits) {
  return reinterpret_cast<Bytes>(reinterpret_cast<__vector unsigned char>(v) >>
                                 static_cast<unsigned char>(bits));
}

// The bits of quad q of vector v in the registers of a half at `field`, kBits per quad.
template <int kBits>
PAGEMILL_INLINE Bytes BitsOf(const uint8_t* field, int half, int q, int v) {
  constexpr int kPerRegister = 8 / kBits;
  field += (half * (kQuads / kPerRegister) + q / kPerRegister) * 64;
  const Bytes bits = ShiftRight(Load(field + 16 * v), kBits * (q % kPerRegister));
  return bits & Splat((1 << kBits) - 1);
}

template <DType kDType>
PAGEMILL_INLINE void LoadValues(const uint8_t* record, int half, Weights* w) {
  for (int q = 0; q < kQuads; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kDType == DType::kQ8_0) {
        w->values[q][v] = Load(record + (half * kQuads + q) * 64 + 16 * v) ^ Splat(-128);
        continue;
      }
      const uint8_t* const high = record + BlockTraits<kDType>::kLayout.high_bits;
      if constexpr (kDType == DType::kQ3_K) {
        w->values[q][v] = BitsOf<2>(record, half, q, v) |
                          (BitsOf<1>(high, half, q, v) << static_cast<signed char>(2));
        continue;
      }
      const Bytes both = Load(record + (half * 4 + q % 4) * 64 + 16 * v);
      Bytes values = q < 4 ? both & Splat(15) : ShiftRight(both, 4);
      if constexpr (BlockTraits<kDType>::kHasTable) {
        const Bytes table = Load(reinterpret_cast<const uint8_t*>(kCodeValues<kDType>.centred));
        values = vec_perm(table, table, reinterpret_cast<__vector unsigned char>(values));
      } else if constexpr (BlockTraits<kDType>::kLayout.high_bits != 0) {
        constexpr int kBits = kDType == DType::kQ6_K ? 2 : 1;
        values |= BitsOf<kBits>(high, half, q, v) << static_cast<signed char>(4);
      }
      w->values[q][v] = values;
    }
  }
}

// Sums of quads [kFirst, kEnd) times the integers at `x`.
template <DType kDType, int kFirst, int kEnd>
PAGEMILL_INLINE void AddQuads(const Weights& w, const uint8_t* x, Words sums[kVectors]) {
  constexpr int kTogether = std::min(kQuadsOfHalfwords<kDType>, kEnd - kFirst);
  const Halfwords ones = vec_splats(static_cast<short>(1));
#pragma GCC unroll 4
  for (int first = kFirst; first < kEnd; first += kTogether) {
    Halfwords even[kVectors], odd[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) even[v] = odd[v] = vec_splats(static_cast<short>(0));
#pragma GCC unroll 8
    for (int q = first; q < first + kTogether; ++q) {
      const Bytes quad = reinterpret_cast<Bytes>(vec_splats(ReadInt(x + 4 * q)));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        even[v] = vec_meadd(w.values[q][v], quad, even[v]);
        odd[v] = vec_moadd(w.values[q][v], quad, odd[v]);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = vec_moadd(even[v], ones, vec_meadd(even[v], ones, sums[v]));
      sums[v] = vec_moadd(odd[v], ones, vec_meadd(odd[v], ones, sums[v]));
    }
  }
}

// The same for both planes of a record of x, plus the integer at `offset` if there is one.
template <DType kDType, int kPlanes, int kFirst, int kEnd>
PAGEMILL_INLINE void MultiplyQuads(const Weights& w, const uint8_t* x, int64_t offset,
                                   Words out[kVectors]) {
  constexpr bool kHasStart = !BlockTraits<kDType>::kHasMinimum && kDType != DType::kQ8_0 &&
                             !BlockTraits<kDType>::kHasTable;
  const Words start = vec_splats(kHasStart ? ReadInt(x + offset) : 0);
  Words upper[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    out[v] = start;
    upper[v] = vec_splats(0);
  }
  if constexpr (kPlanes == 2) AddQuads<kDType, kFirst, kEnd>(w, x, upper);
  AddQuads<kDType, kFirst, kEnd>(w, x + 32 * (kPlanes - 1), out);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) out[v] += upper[v] << 7;
}

// Adds the products of the two halves of a block of a row of x, each with a scale of its own.
template <int kPlanes>
PAGEMILL_INLINE void AddHalves(const Weights& w, const uint8_t* x, const Words first[kVectors],
                               const Words second[kVectors], float* y) {
  const Floats scale = vec_splats(ReadFloat(x + kScaleAt<kPlanes>));
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    Floats sum;
    std::memcpy(&sum, y + 4 * v, sizeof(sum));
    const Floats scaled = __builtin_convertvector(first[v], Floats) * w.scale[v];
    const Floats both =
        vec_madd(__builtin_convertvector(second[v], Floats), w.second_scale[v], scaled);
    sum = vec_madd(both, scale, sum);
    std::memcpy(y + 4 * v, &sum, sizeof(sum));
  }
}

// Adds a block of a row of x to the row's 16 outputs in this half.
template <DType kDType, int kPlanes>
PAGEMILL_INLINE void AddBlock(const Weights& w, const uint8_t* x, float* y) {
  using T = BlockTraits<kDType>;
  constexpr int64_t kAt = kOffsetAt<kPlanes>;
  Words sums[kVectors];
  if constexpr (T::kHasHalves) {
    Words others[kVectors];
    MultiplyQuads<kDType, kPlanes, 0, 4>(w, x, kAt, sums);
    MultiplyQuads<kDType, kPlanes, 4, 8>(w, x, kAt + 4, others);
    if constexpr (T::kHasTwoScales) return AddHalves<kPlanes>(w, x, sums, others, y);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = sums[v] * w.half_scales[0][v] + others[v] * w.half_scales[1][v];
    }
  } else {
    MultiplyQuads<kDType, kPlanes, 0, kQuads>(w, x, kAt, sums);
  }
  const Floats scale = vec_splats(ReadFloat(x + kScaleAt<kPlanes>));
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    Floats sum;
    std::memcpy(&sum, y + 4 * v, sizeof(sum));
    sum = vec_madd(__builtin_convertvector(sums[v], Floats), w.scale[v] * scale, sum);
    if constexpr (T::kHasMinimum) {
      sum = vec_madd(w.minimum[v], vec_splats(ReadFloat(x + kAt)), sum);
    }
    std::memcpy(y + 4 * v, &sum, sizeof(sum));
  }
}

template <DType kDType, int kPlanes>
PAGEMILL_INLINE void QuantizeBlock(const float* x, uint8_t* out) {
  uint32_t bits = 0;
  for (int i = 0; i < kRecordElements; ++i) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffff;
    bits = magnitude > bits ? magnitude : bits;
  }
  constexpr int kLevels = kPlanes == 1 ? 127 : 127 * 128;
  const BlockScale by = BlockScaleOf<kLevels>(bits);
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < kRecordElements; ++i) {
    const float rounded = __builtin_rintf(x[i] * by.inverse);
    // The scale of a block with a NaN is NaN, so its integers are arbitrary.
    const int32_t integer = rounded == rounded ? static_cast<int32_t>(rounded) : 0;
    const int32_t upper = kPlanes == 1 ? integer : (integer + 64) >> 7;
    out[i] = static_cast<uint8_t>(upper);
    if constexpr (kPlanes == 2) out[32 + i] = static_cast<uint8_t>(integer - upper * 128);
    sums[i / 16] += integer;
  }
  FinishRecord<kDType, kPlanes>(by.scale, sums[0], sums[1], out);
}

// For kKernels (block_walk_inl.h).
template <int kPlanes>
struct VxeBlocks : PlainBlocks<kPlanes> {
  static constexpr int64_t kPrefetchBytes = 0;

  template <DType kDType>
  PAGEMILL_INLINE static void Prepare(const InputRows& x, uint8_t* chunk) {
    PrepareRows<kPlanes>(
        x, chunk, [](const float* from, uint8_t* to) { QuantizeBlock<kDType, kPlanes>(from, to); });
  }

  template <DType kDType>
  PAGEMILL_INLINE static void Add(const uint8_t* head, const uint8_t* record, const uint8_t* x,
                                  int64_t n, float* y) {
    for (int half = 0; half < kHalves; ++half, y += kHalfSliceRows) {
      Weights w;
      LoadScales<kDType>(head, record, half * kHalfSliceRows, &w);
      LoadValues<kDType>(record, half, &w);
      for (int64_t r = 0; r < n; ++r) {
        AddBlock<kDType, kPlanes>(w, x + r * kXRecordBytes<kPlanes>, y + r * kSliceRows);
      }
    }
  }
};

}  // namespace

constinit const PackedGemm kVxeInt8Kernels = kKernels<VxeBlocks<1>>;
constinit const PackedGemm kVxeInt16Kernels = kKernels<VxeBlocks<2>>;

}  // namespace pagemill::ops::linear
