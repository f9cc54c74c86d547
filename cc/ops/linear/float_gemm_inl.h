// File: cc/ops/linear/float_gemm_inl.h
// The loops of a FloatGemm as templates over an instruction set. Each linear_<isa>.cc instantiates
// them with its own `Isa` type, so no instantiation is shared between files.
//
// `Isa` (decoder_<isa>.h has the examples):
//   Vec                                a vector of kLanes floats
//   kDirectN                           x rows of the direct path's register tile: 2 or 4
//   kMaxDirectN                        x rows up to which the direct path is the faster one
//   kTileN                             x rows of the largest register tile
//   Prefetch(p)                        must be always inlined: GCC drops calls of functions that do
//   nothing
//                                      but prefetch
//   Zero(), Load(p), LoadPartial(p, count <= kLanes: missing lanes are 0), Fma(a, b, c) = a * b +
//   c, Store(p, v), Sum4(v[4])            sums of the lanes of four vectors, in a fixed order
//   Decoder<DType>                     kElements of a block in kBytes: State Begin(block), then
//                                      Decode(state, part, out[kVectors]) for each of kParts parts;
//                                      where kRowsMayEndInside a block, DecodePartial(p, count)
//                                      gives one vector of count <= kLanes elements
//
// Order of accumulation: lane i of an output's accumulator takes k = i, i + kLanes, ... ascending,
// then the lanes are summed by Sum4. Direct and tiled loops both do exactly that.
#ifndef PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_INL_H_

#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/linear/float_gemm_kernels.h"
#include "cc/tensor/dtype.h"

#define PM_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {

using Float4 = float __attribute__((vector_size(16)));

inline constexpr int kTileM = 4;  // weight rows of a register tile: what Sum4 takes

// How far ahead of their use weights are requested. Hardware prefetchers follow neither four short
// rows at once nor a page boundary: without this, decoding from memory is 2.4 times slower
// (README).
inline constexpr int64_t kPrefetchBytes = 8192;

// Elements of k that the tiled path works through at a time: 6 rows of x and 4 of weights are then
// 30 KB, which fits in L1 (32 KB and up).
inline constexpr int64_t kPartElements = 768;

// y[n][m .. m + 3] from accumulators; those past m_end are dropped.
template <class Isa>
PM_INLINE void StoreOutputs(const Operands& o, const typename Isa::Vec sums[kTileM], int64_t n,
                            int64_t m, int64_t m_end) {
  Float4 out = Isa::Sum4(sums);
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

template <class Isa>
PM_INLINE int LanesLeft(int64_t elements) {
  return elements < Isa::kLanes ? static_cast<int>(elements) : Isa::kLanes;
}

// kN rows of x from n on (those past o.n repeat the last) times 4 weight rows from m on.
template <class Isa, class Decoder, int kN>
PM_INLINE void DirectTile(const Operands& o, int64_t first_n, int64_t m, int64_t m_end) {
  using Vec = typename Isa::Vec;
  const uint8_t* w[kTileM];
  const float* x[kN];
  Vec sums[kN][kTileM];
#pragma GCC unroll 4
  for (int i = 0; i < kTileM; ++i) {
    w[i] = o.weights + (m + i < m_end ? m + i : m_end - 1) * o.weight_stride;
  }
#pragma GCC unroll 4
  for (int n = 0; n < kN; ++n) {
    x[n] = o.x + (first_n + n < o.n ? first_n + n : o.n - 1) * o.x_stride;
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) sums[n][i] = Isa::Zero();
  }
  const uint8_t* ahead = w[0] + kPrefetchBytes;
  int64_t k = 0;
  for (; k + Decoder::kElements <= o.k; k += Decoder::kElements) {
    for (int b = 0; b < kTileM * Decoder::kBytes; b += 64) Isa::Prefetch(ahead + b);
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
        Vec weights[Decoder::kVectors];
        Decoder::Decode(states[i], part, weights);
        const int64_t at = k + part * Decoder::kVectors * Isa::kLanes;
#pragma GCC unroll 8
        for (int v = 0; v < Decoder::kVectors; ++v) {
#pragma GCC unroll 4
          for (int n = 0; n < kN; ++n) {
            sums[n][i] = Isa::Fma(weights[v], Isa::Load(x[n] + at + v * Isa::kLanes), sums[n][i]);
          }
        }
      }
    }
  }
  if constexpr (Decoder::kRowsMayEndInside) {
    for (; k < o.k; k += Isa::kLanes) {
      const int count = LanesLeft<Isa>(o.k - k);
#pragma GCC unroll 4
      for (int i = 0; i < kTileM; ++i) {
        const Vec weights = Decoder::DecodePartial(w[i], count);
        w[i] += Decoder::kBytes / (Decoder::kElements / Isa::kLanes);
#pragma GCC unroll 4
        for (int n = 0; n < kN; ++n) {
          sums[n][i] = Isa::Fma(weights, Isa::LoadPartial(x[n] + k, count), sums[n][i]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < kN; ++n) {
    if (first_n + n < o.n) StoreOutputs<Isa>(o, sums[n], first_n + n, m, m_end);
  }
}

// All rows of x against one tile of weight rows, which stays in L1 meanwhile.
template <class Isa, class Decoder>
void DirectRows(const Operands& o, int64_t m_begin, int64_t m_end) {
  for (int64_t m = m_begin; m < m_end; m += kTileM) {
    for (int64_t n = 0; n < o.n; n += Isa::kDirectN) {
      if (o.n - n == 1) {
        DirectTile<Isa, Decoder, 1>(o, n, m, m_end);
      } else if (Isa::kDirectN == 2 || o.n - n == 2) {
        DirectTile<Isa, Decoder, 2>(o, n, m, m_end);
      } else if constexpr (Isa::kDirectN == 4) {
        DirectTile<Isa, Decoder, 4>(o, n, m, m_end);
      }
    }
  }
}

template <class Isa, class Decoder>
void DequantizeBlocks(const uint8_t* row, int64_t count, float* out) {
  int64_t k = 0;
  for (; k + Decoder::kElements <= count; k += Decoder::kElements, row += Decoder::kBytes) {
    for (int b = 0; b < Decoder::kBytes; b += 64) Isa::Prefetch(row + kPrefetchBytes + b);
    typename Decoder::State state;
    Decoder::Begin(row, &state);
#pragma GCC unroll 8
    for (int part = 0; part < Decoder::kParts; ++part) {
      typename Isa::Vec weights[Decoder::kVectors];
      Decoder::Decode(state, part, weights);
      for (int v = 0; v < Decoder::kVectors; ++v, out += Isa::kLanes) Isa::Store(out, weights[v]);
    }
  }
  if constexpr (Decoder::kRowsMayEndInside) {
    for (; k < count; k += Isa::kLanes, out += Isa::kLanes) {
      const int left = LanesLeft<Isa>(count - k);
      float last[Isa::kLanes];
      Isa::Store(last, Decoder::DecodePartial(row, left));
      for (int i = 0; i < left; ++i) out[i] = last[i];
      row += Decoder::kBytes / (Decoder::kElements / Isa::kLanes);
    }
  }
}

// A part of the sum over k, and where the accumulators of a tile wait between parts.
template <class Isa>
struct Part {
  int64_t begin;
  int64_t end;
  bool first;
  bool last;
  typename Isa::Vec* sums;  // [kN, kTileM] of this tile
};

// kN rows of x from n on times 4 float weight rows from m on.
template <class Isa, int kN>
PM_INLINE void FloatTile(const Operands& o, const FloatRows& p, const Part<Isa>& part, int64_t n,
                         int64_t m) {
  using Vec = typename Isa::Vec;
  const uint8_t* w[kTileM];
  const float* x[kN];
  Vec sums[kN][kTileM];
#pragma GCC unroll 4
  for (int i = 0; i < kTileM; ++i) {
    const int64_t row = m + i < p.m_end ? m + i : p.m_end - 1;
    w[i] = p.rows + (row - p.m_begin) * p.stride;
  }
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    x[j] = o.x + (n + j) * o.x_stride;
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) {
      sums[j][i] = part.first ? Isa::Zero() : part.sums[j * kTileM + i];
    }
  }
  int64_t k = part.begin;
  for (; k + Isa::kLanes <= part.end; k += Isa::kLanes) {
    Vec inputs[kN];
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) inputs[j] = Isa::Load(x[j] + k);
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) {
      const Vec weights = Isa::Load(w[i] + k * 4);
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) sums[j][i] = Isa::Fma(weights, inputs[j], sums[j][i]);
    }
  }
  if (k < part.end) {
    const int count = static_cast<int>(part.end - k);
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) {
      const Vec weights = Isa::LoadPartial(w[i] + k * 4, count);
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) {
        sums[j][i] = Isa::Fma(weights, Isa::LoadPartial(x[j] + k, count), sums[j][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    if (part.last) {
      StoreOutputs<Isa>(o, sums[j], n + j, m, p.m_end);
      continue;
    }
#pragma GCC unroll 4
    for (int i = 0; i < kTileM; ++i) part.sums[j * kTileM + i] = sums[j][i];
  }
}

// kN rows of x against the whole slice, one part of k after the other: a part of the rows of x and
// of a tile of weights stay in L1 together.
template <class Isa, int kN>
void FloatChunk(const Operands& o, const FloatRows& p, int64_t n) {
  typename Isa::Vec waiting[kMaxFloatRows / kTileM][kN * kTileM];
  const int64_t parts = o.k <= kPartElements ? 1 : (o.k + kPartElements - 1) / kPartElements;
  const int64_t vectors = o.k / Isa::kLanes;
  for (int64_t i = 0; i < parts; ++i) {
    Part<Isa> part;
    part.begin = i * vectors / parts * Isa::kLanes;
    part.end = i == parts - 1 ? o.k : (i + 1) * vectors / parts * Isa::kLanes;
    part.first = i == 0;
    part.last = i == parts - 1;
    for (int64_t m = p.m_begin; m < p.m_end; m += kTileM) {
      part.sums = waiting[(m - p.m_begin) / kTileM];
      FloatTile<Isa, kN>(o, p, part, n, m);
    }
  }
}

// The chunk of `count` rows of x, 1 <= count <= kN.
template <class Isa, int kN>
void FloatChunkOf(const Operands& o, const FloatRows& p, int64_t n, int64_t count) {
  if constexpr (kN > 1) {
    if (count < kN) return FloatChunkOf<Isa, kN - 1>(o, p, n, count);
  }
  FloatChunk<Isa, kN>(o, p, n);
}

// Chunks of nearly equal height, so that none is much less efficient than the others.
template <class Isa>
void MultiplySlice(const Operands& o, const FloatRows& p) {
  const int64_t chunks = (o.n + Isa::kTileN - 1) / Isa::kTileN;
  for (int64_t s = 0; s < chunks; ++s) {
    const int64_t begin = s * o.n / chunks;
    const int64_t end = (s + 1) * o.n / chunks;
    FloatChunkOf<Isa, Isa::kTileN>(o, p, begin, end - begin);
  }
}

// Dtypes that are not a weight's are excluded by the op's check.
template <class Isa>
void Direct(const Operands& o, int64_t m_begin, int64_t m_end) {
  WithWeightFormat(o.dtype, [&]<DType kDType>() {
    DirectRows<Isa, typename Isa::template Decoder<kDType>>(o, m_begin, m_end);
  });
}

template <class Isa>
void Dequantize(DType dtype, const uint8_t* row, int64_t k, float* out) {
  WithWeightFormat(dtype, [&]<DType kDType>() {
    DequantizeBlocks<Isa, typename Isa::template Decoder<kDType>>(row, k, out);
  });
}

template <class Isa>
inline constexpr FloatGemm kFloatGemmOf{Isa::kMaxDirectN, Direct<Isa>, Dequantize<Isa>,
                                        MultiplySlice<Isa>};

}  // namespace pagemill::ops::linear

#undef PM_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_INL_H_
