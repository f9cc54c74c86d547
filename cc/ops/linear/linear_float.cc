// The float GEMM of `linear`, for each instruction set: stored weights, decoded to floats, times x
// in place. Few rows of x are multiplied with weights decoded in registers ("direct"); for more
// rows, weights are decoded to memory that stays in L2 ("tiled").
//
// Order of accumulation: lane i of an output's accumulator takes k = i, i + kLanes, ... ascending,
// then the lanes are summed by Sum4. Direct and tiled loops both do exactly that, so that an output
// has the same bits in any number of rows.
#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/linear/float_lanes.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/row_tiles.h"
#include "cc/ops/linear/weight_prefetch.h"
#include "cc/ops/vec/vec.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// Prefetch distance of weights. Hardware prefetchers follow neither four short rows at once nor
// rows across pages: without this, decoding from memory is 2.4 times slower (README).
constexpr int64_t kPrefetchBytes = 8192;

// Blocks are decoded more slowly than memory delivers them, so they are wanted in L1.
template <class Decoder>
PAGEMILL_INLINE void Prefetch(const uint8_t* at) {
  if constexpr (Decoder::kRowsMayEndInside) {
    PrefetchWeights(at);
  } else {
    __builtin_prefetch(at);
  }
}

// Elements of k that the tiled path multiplies at a time: 6 rows of x and 4 of weights are then 30
// KB, which fits in L1 (at least 32 KB).
constexpr int64_t kPartElements = 768;

// Decoded rows of weights stay in L2 (1 to 2 MiB on server cores) next to the streamed rows of x.
constexpr int64_t kMaxDecodedBytes = 512 << 10;
constexpr int64_t kMinDecodedRows = 8;
constexpr int64_t kMaxDecodedRows = 64;
constexpr int64_t kLineBytes = 64;

// Rows [m_begin, m_end) of the weights as floats, at most kMaxDecodedRows.
struct FloatRows {
  const uint8_t* rows;  // any alignment
  int64_t stride;       // bytes
  int64_t m_begin;
  int64_t m_end;
};

PAGEMILL_INLINE const float* RowOfX(const PackedProduct& o, int64_t n) {
  return reinterpret_cast<const float*>(o.activations) + n * o.x_stride;
}

// y[n][m .. m + 3] from accumulators; those past m_end are dropped.
PAGEMILL_INLINE void StoreOutputs(const PackedProduct& o, const Vec::F sums[kTileM], int64_t n,
                                  int64_t m, int64_t m_end) {
  Float4 out = Sum4(sums);
  float* y = o.y + n * o.y_stride + m;
  if (m + kTileM <= m_end) {
    if (o.bias != nullptr) {
      Float4 bias;
      __builtin_memcpy(&bias, o.bias + m, sizeof(bias));
      out += bias;
    }
    __builtin_memcpy(y, &out, sizeof(out));
    return;
  }
  for (int i = 0; i < m_end - m; ++i) y[i] = o.bias == nullptr ? out[i] : out[i] + o.bias[m + i];
}

PAGEMILL_INLINE int LanesLeft(int64_t elements) {
  return elements < Vec::kLanes ? static_cast<int>(elements) : Vec::kLanes;
}

// Multiplies kN rows of x from n on (those past o.n repeat the last) with 4 weight rows from m on.
template <class Decoder, int kN>
PAGEMILL_INLINE void DirectTile(const PackedProduct& o, int64_t first_n, int64_t m, int64_t m_end) {
  const uint8_t* w[kTileM];
  const float* x[kN];
  Vec::F sums[kN][kTileM];
#pragma GCC unroll 4
  for (int i = 0; i < kTileM; ++i) {
    w[i] = o.weights + (m + i < m_end ? m + i : m_end - 1) * o.weight_stride;
  }
#pragma GCC unroll 4
  for (int n = 0; n < kN; ++n) {
    x[n] = RowOfX(o, first_n + n < o.n ? first_n + n : o.n - 1);
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) sums[n][i] = Vec::Zero();
  }
  const uint8_t* ahead = w[0] + kPrefetchBytes;
  int64_t k = 0;
  for (; k + Decoder::kElements <= o.k; k += Decoder::kElements) {
    for (int b = 0; b < kTileM * Decoder::kBytes; b += 64) Prefetch<Decoder>(ahead + b);
    ahead += kTileM * Decoder::kBytes;
    typename Decoder::State states[kTileM];
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) {
      Decoder::Begin(w[i], &states[i]);
      w[i] += Decoder::kBytes;
    }
#pragma GCC unroll 8
    for (int part = 0; part < Decoder::kParts; ++part) {
#pragma GCC unroll 4
      for (int i = 0; i < kTileM; ++i) {
        Vec::F weights[Decoder::kVectors];
        Decoder::Decode(states[i], part, weights);
        const int64_t at = k + part * Decoder::kVectors * Vec::kLanes;
#pragma GCC unroll 8
        for (int v = 0; v < Decoder::kVectors; ++v) {
#pragma GCC unroll 4
          for (int n = 0; n < kN; ++n) {
            sums[n][i] = Vec::Fma(weights[v], Vec::Load(x[n] + at + v * Vec::kLanes), sums[n][i]);
          }
        }
      }
    }
  }
  if constexpr (Decoder::kRowsMayEndInside) {
    for (; k < o.k; k += Vec::kLanes) {
      const int count = LanesLeft(o.k - k);
#pragma GCC unroll 4
      for (int i = 0; i < kTileM; ++i) {
        const Vec::F weights = Decoder::DecodePartial(w[i], count);
        w[i] += Decoder::kBytes / (Decoder::kElements / Vec::kLanes);
#pragma GCC unroll 4
        for (int n = 0; n < kN; ++n) {
          sums[n][i] = Vec::Fma(weights, Vec::LoadN(x[n] + k, count), sums[n][i]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < kN; ++n) {
    if (first_n + n < o.n) StoreOutputs(o, sums[n], first_n + n, m, m_end);
  }
}

// Multiplies all rows of x with one tile of weight rows, which stays in L1.
template <class Decoder>
void DirectRows(const PackedProduct& o, int64_t m_begin, int64_t m_end) {
  for (int64_t m = m_begin; m < m_end; m += kTileM) {
    for (int64_t n = 0; n < o.n; n += kDirectN) {
      if (o.n - n == 1) {
        DirectTile<Decoder, 1>(o, n, m, m_end);
      } else if (kDirectN == 2 || o.n - n == 2) {
        DirectTile<Decoder, 2>(o, n, m, m_end);
      } else if constexpr (kDirectN == 4) {
        DirectTile<Decoder, 4>(o, n, m, m_end);
      }
    }
  }
}

template <class Decoder>
void DequantizeBlocks(const uint8_t* row, int64_t count, float* out) {
  int64_t k = 0;
  for (; k + Decoder::kElements <= count; k += Decoder::kElements, row += Decoder::kBytes) {
    for (int b = 0; b < Decoder::kBytes; b += 64) Prefetch<Decoder>(row + kPrefetchBytes + b);
    typename Decoder::State state;
    Decoder::Begin(row, &state);
#pragma GCC unroll 8
    for (int part = 0; part < Decoder::kParts; ++part) {
      Vec::F weights[Decoder::kVectors];
      Decoder::Decode(state, part, weights);
      for (int v = 0; v < Decoder::kVectors; ++v, out += Vec::kLanes) Vec::Store(out, weights[v]);
    }
  }
  if constexpr (Decoder::kRowsMayEndInside) {
    for (; k < count; k += Vec::kLanes, out += Vec::kLanes) {
      const int left = LanesLeft(count - k);
      float last[Vec::kLanes];
      Vec::Store(last, Decoder::DecodePartial(row, left));
      for (int i = 0; i < left; ++i) out[i] = last[i];
      row += Decoder::kBytes / (Decoder::kElements / Vec::kLanes);
    }
  }
}

// A part of the sum over k, and the accumulators of a tile between parts.
struct Part {
  int64_t begin;
  int64_t end;
  bool first;
  bool last;
  Vec::F* sums;  // [kN, kTileM] of this tile
};

// Multiplies kN rows of x from n on with 4 float weight rows from m on.
template <int kN>
PAGEMILL_INLINE void FloatTile(const PackedProduct& o, const FloatRows& p, const Part& part,
                               int64_t n, int64_t m) {
  const uint8_t* w[kTileM];
  const float* x[kN];
  Vec::F sums[kN][kTileM];
#pragma GCC unroll 4
  for (int i = 0; i < kTileM; ++i) {
    const int64_t row = m + i < p.m_end ? m + i : p.m_end - 1;
    w[i] = p.rows + (row - p.m_begin) * p.stride;
  }
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    x[j] = RowOfX(o, n + j);
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) {
      sums[j][i] = part.first ? Vec::Zero() : part.sums[j * kTileM + i];
    }
  }
  int64_t k = part.begin;
  for (; k + Vec::kLanes <= part.end; k += Vec::kLanes) {
    Vec::F inputs[kN];
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) inputs[j] = Vec::Load(x[j] + k);
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) {
      const Vec::F weights = Vec::Load(reinterpret_cast<const float*>(w[i]) + k);
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) sums[j][i] = Vec::Fma(weights, inputs[j], sums[j][i]);
    }
  }
  if (k < part.end) {
    const int count = static_cast<int>(part.end - k);
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) {
      const Vec::F weights = Vec::LoadN(reinterpret_cast<const float*>(w[i]) + k, count);
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) {
        sums[j][i] = Vec::Fma(weights, Vec::LoadN(x[j] + k, count), sums[j][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    if (part.last) {
      StoreOutputs(o, sums[j], n + j, m, p.m_end);
      continue;
    }
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) part.sums[j * kTileM + i] = sums[j][i];
  }
}

// Multiplies kN rows of x with the decoded rows, one part of k after the other: a part of the rows
// of x and of a tile of weights stay in L1 together.
template <int kN>
void MultiplyRows(const PackedProduct& o, const FloatRows& p, int64_t n) {
  Vec::F waiting[kMaxDecodedRows / kTileM][kN * kTileM];
  const int64_t parts = o.k <= kPartElements ? 1 : (o.k + kPartElements - 1) / kPartElements;
  const int64_t vectors = o.k / Vec::kLanes;
  for (int64_t i = 0; i < parts; ++i) {
    Part part;
    part.begin = i * vectors / parts * Vec::kLanes;
    part.end = i == parts - 1 ? o.k : (i + 1) * vectors / parts * Vec::kLanes;
    part.first = i == 0;
    part.last = i == parts - 1;
    for (int64_t m = p.m_begin; m < p.m_end; m += kTileM) {
      part.sums = waiting[(m - p.m_begin) / kTileM];
      FloatTile<kN>(o, p, part, n, m);
    }
  }
}

void MultiplyTiles(const PackedProduct& o, const FloatRows& p) {
  ForEachRowTile<kTileN>(o.n, [&]<int kN>(int64_t n) { MultiplyRows<kN>(o, p, n); });
}

// Bytes between decoded rows. An odd number of cache lines: rows a power of two apart would fall
// into the same few sets of the L1 cache.
PAGEMILL_INLINE int64_t DecodedStride(int64_t k) {
  const int64_t lines = (k * static_cast<int64_t>(sizeof(float)) + kLineBytes - 1) / kLineBytes;
  return (lines | 1) * kLineBytes;
}

// Rows that are decoded together, or that stay in cache as stored.
PAGEMILL_INLINE int64_t DecodedRows(int64_t k) {
  const int64_t fitting = kMaxDecodedBytes / DecodedStride(k) / kMinDecodedRows * kMinDecodedRows;
  if (fitting < kMinDecodedRows) return kMinDecodedRows;
  return fitting < kMaxDecodedRows ? fitting : kMaxDecodedRows;
}

int64_t ScratchBytes(DType dtype, int64_t k) {
  return dtype == DType::kF32 ? 0 : DecodedRows(k) * DecodedStride(k);
}

template <DType kDType>
void MultiplyFormat(const PackedProduct& o) {
  using Decoder = FloatDecoder<kDType>;
  if (o.n <= kMaxDirectN) return DirectRows<Decoder>(o, 0, o.m);
  const int64_t rows = DecodedRows(o.k);
  for (int64_t begin = 0; begin < o.m; begin += rows) {
    const int64_t end = begin + rows < o.m ? begin + rows : o.m;
    const uint8_t* const weights = o.weights + begin * o.weight_stride;
    if constexpr (kDType == DType::kF32) {
      MultiplyTiles(o, {weights, o.weight_stride, begin, end});
    } else {
      const int64_t stride = DecodedStride(o.k);
      for (int64_t m = 0; m < end - begin; ++m) {
        DequantizeBlocks<Decoder>(weights + m * o.weight_stride, o.k,
                                  reinterpret_cast<float*>(o.scratch + m * stride));
      }
      MultiplyTiles(o, {o.scratch, stride, begin, end});
    }
  }
}

// The op's check excludes dtypes that are not weight dtypes.
void Multiply(const PackedProduct& o) {
  WithWeightFormat(o.dtype, [&]<DType kDType>() { MultiplyFormat<kDType>(o); });
}

}  // namespace

void PAGEMILL_VEC_NAME(Dequantize)(DType dtype, const uint8_t* row, int64_t k, float* out) {
  WithWeightFormat(dtype,
                   [&]<DType kDType>() { DequantizeBlocks<FloatDecoder<kDType>>(row, k, out); });
}

constinit const PackedGemm PAGEMILL_VEC_NAME(kFloat) = {
    .max_chunk_rows = 512, .multiply = Multiply, .scratch_bytes = ScratchBytes};

}  // namespace pagemill::ops::linear
