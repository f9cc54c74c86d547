// Products with scaled weights in float, for each instruction set, in GCC vector extensions.
//
// A chunk is rows of x, each padded with zeros to a multiple of 4 elements. Order of accumulation:
// one chain per output and block, k ascending; blocks ascending, each times its scale; then the
// bias.
#include <bit>
#include <cstdint>
#include <cstring>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/row_tiles.h"
#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/vec/vec.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::scaled {
namespace {

constexpr int kVectors = 2;
constexpr int64_t kGroupRows = kVectors * Vec::kLanes;  // weight rows that are multiplied together
// Rows of x of a register tile; each has two registers of sums.
constexpr int kTileN = Vec::kLanes == 16 ? 8 : 4;
constexpr int64_t kMaxChunkRows = 24;
constexpr int64_t kPrefetchBytes = 4096;

constexpr int kRegisterBytes = Vec::kLanes * 4;
using Floats = float __attribute__((vector_size(kRegisterBytes)));
using Bits = uint32_t __attribute__((vector_size(kRegisterBytes)));
using Ints = int32_t __attribute__((vector_size(kRegisterBytes)));

int64_t PaddedK(int64_t k) { return (k + kQuadBytes - 1) / kQuadBytes * kQuadBytes; }

int64_t ChunkBytes(DType, int64_t n, int64_t k) {
  return (n * PaddedK(k) * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

void Prepare(DType, const linear::InputRows& x, uint8_t* chunk) {
  float* to = reinterpret_cast<float*>(chunk);
  for (int64_t n = 0; n < x.n; ++n, to += PaddedK(x.k)) {
    if (!x.Prepares(n)) continue;
    std::memcpy(to, x.rows + n * x.stride, static_cast<size_t>(x.k) * sizeof(float));
    for (int64_t k = x.k; k < PaddedK(x.k); ++k) to[k] = 0;
  }
}

// GCC drops calls of functions that only prefetch, unless it has to inline them.
PAGEMILL_INLINE void Prefetch(const uint8_t* p) { __builtin_prefetch(p); }

// Moves byte `kByte` of each quad to the upper 8 bits of its lane.
template <int kByte>
PAGEMILL_INLINE Bits UpperByte(Bits quads) {
  constexpr int kShift = std::endian::native == std::endian::little ? 24 - 8 * kByte : 8 * kByte;
  return quads << kShift;
}

template <DType kDType, int kByte>
PAGEMILL_INLINE Floats Decode(Bits quads) {
  const Bits upper = UpperByte<kByte>(quads);
  if constexpr (kDType == DType::kI8) {
    // The offset of 128 flipped the sign bit.
    return __builtin_convertvector(reinterpret_cast<Ints>(upper ^ 0x80000000u) >> 24, Floats);
  } else {
    // Like F8E4M3ToFloat of float8.h.
    const Bits magnitude = upper >> 4 & 0x07f00000u;
    const Floats rebased = reinterpret_cast<Floats>(magnitude) * 0x1p120f;
    const Bits nan = reinterpret_cast<Bits>(magnitude == 0x07f00000u) & 0x7fc00000u;
    return reinterpret_cast<Floats>(reinterpret_cast<Bits>(rebased) | nan | (upper & 0x80000000u));
  }
}

template <DType kDType, int kN, int kByte>
PAGEMILL_INLINE void AddByte(const Bits quads[kVectors], const float* x, int64_t x_stride,
                             Floats (*sums)[kVectors]) {
  const Floats w0 = Decode<kDType, kByte>(quads[0]);
  const Floats w1 = Decode<kDType, kByte>(quads[1]);
#pragma GCC unroll 8
  for (int n = 0; n < kN; ++n) {
    const float element = x[n * x_stride + kQuadOrder[kByte]];
    sums[n][0] += w0 * element;
    sums[n][1] += w1 * element;
  }
}

// Multiplies kN rows of x, from `x` on, with a quad of a group of weight rows.
template <DType kDType, int kN>
PAGEMILL_INLINE void AddQuad(const uint8_t* w, const float* x, int64_t x_stride,
                             Floats (*sums)[kVectors]) {
  Bits quads[kVectors];
  std::memcpy(quads, w, sizeof(quads));
  AddByte<kDType, kN, 0>(quads, x, x_stride, sums);
  AddByte<kDType, kN, 2>(quads, x, x_stride, sums);
  AddByte<kDType, kN, 1>(quads, x, x_stride, sums);
  AddByte<kDType, kN, 3>(quads, x, x_stride, sums);
}

// The scales of a group of weight rows in one block of columns.
PAGEMILL_INLINE void LoadScales(const linear::PackedProduct& p, int64_t group, int64_t block,
                                Floats scales[kVectors]) {
  float values[kGroupRows];
  for (int64_t i = 0; i < kGroupRows; ++i) {
    const int64_t row = group * kGroupRows + i;
    values[i] = row < p.m ? p.scales.OfRow(row)[block] : 0.0f;
  }
  std::memcpy(scales, values, sizeof(values));
}

// Multiplies kN rows of x from n on with group `group` of the slice's rows.
template <DType kDType, int kN>
void MultiplyTile(const linear::PackedProduct& p, int64_t n, int64_t group) {
  const int64_t x_stride = PaddedK(p.k);
  const float* x = reinterpret_cast<const float*>(p.activations) + n * x_stride;
  const uint8_t* w = p.weights + group * kGroupRows * kQuadBytes;
  Floats total[kN][kVectors] = {};
  int64_t block = 0;
  for (int64_t begin = 0; begin < p.k; begin += p.scales.block_columns, ++block) {
    const int64_t left = x_stride - begin;
    const int64_t end = begin + (left < p.scales.block_columns ? left : p.scales.block_columns);
    Floats sums[kN][kVectors] = {};
    for (int64_t k = begin; k < end; k += kQuadBytes, w += kSliceQuadBytes) {
      Prefetch(w + kPrefetchBytes);
      AddQuad<kDType, kN>(w, x + k, x_stride, sums);
    }
    Floats scales[kVectors];
    LoadScales(p, group, block, scales);
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
      total[i][0] += scales[0] * sums[i][0];
      total[i][1] += scales[1] * sums[i][1];
    }
  }
  const int64_t first = group * kGroupRows;
  const int64_t rows = p.m - first < kGroupRows ? p.m - first : kGroupRows;
  for (int i = 0; i < kN; ++i) {
    float out[kGroupRows];
    std::memcpy(out, total[i], sizeof(out));
    float* const y = p.y + (n + i) * p.y_stride + first;
    for (int64_t r = 0; r < rows; ++r) {
      y[r] = p.bias == nullptr ? out[r] : out[r] + p.bias[first + r];
    }
  }
}

template <DType kDType>
void MultiplySlice(const linear::PackedProduct& p) {
  for (int64_t group = 0; group * kGroupRows < p.m; ++group) {
    linear::ForEachRowTile<kTileN>(
        p.n, [&]<int kN>(int64_t n) { MultiplyTile<kDType, kN>(p, n, group); });
  }
}

void Multiply(const linear::PackedProduct& p) {
  p.dtype == DType::kI8 ? MultiplySlice<DType::kI8>(p) : MultiplySlice<DType::kF8E4M3>(p);
}

}  // namespace

constinit const linear::PackedGemm PAGEMILL_VEC_NAME(kFloat) = {
    kMaxChunkRows, ScaledSliceBytes, PackScaledSlice, ChunkBytes, Prepare, Multiply};

}  // namespace pagemill::ops::scaled
