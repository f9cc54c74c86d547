// File: cc/ops/linear/kernel_set_inl.h
// The loops of a KernelSet as templates over an instruction set. Each linear_<isa>.cc instantiates
// them with its own `Isa` type, so no instantiation is shared between files.
//
// `Isa` (decoder_<isa>.h has the examples):
//   Vec                                a vector of kLanes floats
//   kDirectN                           largest number of x rows of the direct path: 1, 2 or 4
//   kTileN                             x rows of the largest register tile
//   Zero(), Load(p), LoadPartial(p, count < kLanes: missing lanes are 0), Fma(a, b, c) = a * b + c,
//   Store(p, v), Sum4(v[4], out[4])    sums of the lanes, in a fixed order
//   Decoder<DType>                     kElements of a block in kBytes: State Begin(block), then
//                                      Decode(state, part, out[kVectors]) for each of kParts parts;
//                                      DecodePartial(p, count) where a row may end inside a block
//
// Order of accumulation: lane i of an output's accumulator takes k = i, i + kLanes, ... ascending,
// then the lanes are summed by Sum4. Direct and tiled loops both do exactly that.
#ifndef PAGEMILL_CC_OPS_LINEAR_KERNEL_SET_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_KERNEL_SET_INL_H_

#include <cstdint>

#include "cc/ops/linear/kernel_set.h"
#include "cc/tensor/dtype.h"

#ifndef PFB
#define PFB 4096
#endif
#define PM_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {

inline constexpr int kPrefetchBytes = PFB;
inline constexpr int kTileM = 4;  // weight rows of a register tile: what Sum4 takes

// y[n][m .. m + 3] from accumulators, those past m_end dropped.
template <class Isa>
PM_INLINE void StoreOutputs(const Operands& o, const typename Isa::Vec sums[kTileM], int64_t n,
                            int64_t m, int64_t m_end) {
  float out[kTileM];
  Isa::Sum4(sums, out);
  float* y = o.y + n * o.y_stride + m;
  for (int i = 0; i < kTileM; ++i) {
    if (m + i < m_end) y[i] = o.bias == nullptr ? out[i] : out[i] + o.bias[m + i];
  }
}

// kN rows of x (those past o.n repeat the last) times 4 weight rows from m on.
template <class Isa, class Decoder, int kN>
PM_INLINE void DirectTile(const Operands& o, int64_t m, int64_t m_end) {
  using Vec = typename Isa::Vec;
  const uint8_t* w[kTileM];
  const float* x[kN];
  Vec sums[kN][kTileM];
  for (int i = 0; i < kTileM; ++i) {
    w[i] = o.weights + (m + i < m_end ? m + i : m_end - 1) * o.weight_stride;
  }
  for (int n = 0; n < kN; ++n) {
    x[n] = o.x + (n < o.n ? n : o.n - 1) * o.x_stride;
    for (int i = 0; i < kTileM; ++i) sums[n][i] = Isa::Zero();
  }
  const uint8_t* ahead = w[0] + kPrefetchBytes;
  int64_t k = 0;
  for (; k + Decoder::kElements <= o.k; k += Decoder::kElements) {
    for (int b = 0; b < kTileM * Decoder::kBytes; b += 64) Isa::Prefetch(ahead + b);
    ahead += kTileM * Decoder::kBytes;
    typename Decoder::State states[kTileM];
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
  if constexpr (Decoder::kElements == Isa::kLanes) {
    if (k < o.k) {
      const int count = static_cast<int>(o.k - k);
      for (int i = 0; i < kTileM; ++i) {
        const Vec weights = Decoder::DecodePartial(w[i], count);
        for (int n = 0; n < kN; ++n) {
          sums[n][i] = Isa::Fma(weights, Isa::LoadPartial(x[n] + k, count), sums[n][i]);
        }
      }
    }
  }
  for (int n = 0; n < kN; ++n) {
    if (n < o.n) StoreOutputs<Isa>(o, sums[n], n, m, m_end);
  }
}

template <class Isa, class Decoder>
void DirectRows(const Operands& o, int64_t m_begin, int64_t m_end) {
  for (int64_t m = m_begin; m < m_end; m += kTileM) {
    if (o.n == 1) {
      DirectTile<Isa, Decoder, 1>(o, m, m_end);
    } else if (Isa::kDirectN == 2 || o.n == 2) {
      DirectTile<Isa, Decoder, 2>(o, m, m_end);
    } else if constexpr (Isa::kDirectN == 4) {
      DirectTile<Isa, Decoder, 4>(o, m, m_end);
    }
  }
}

template <class Isa, class Decoder>
void DequantizeBlocks(const uint8_t* row, int64_t count, float* out) {
  int64_t k = 0;
  for (; k + Decoder::kElements <= count; k += Decoder::kElements, row += Decoder::kBytes) {
    typename Decoder::State state;
    Decoder::Begin(row, &state);
#pragma GCC unroll 8
    for (int part = 0; part < Decoder::kParts; ++part) {
      typename Isa::Vec weights[Decoder::kVectors];
      Decoder::Decode(state, part, weights);
      for (int v = 0; v < Decoder::kVectors; ++v, out += Isa::kLanes) Isa::Store(out, weights[v]);
    }
  }
  if constexpr (Decoder::kElements == Isa::kLanes) {
    if (k < count) {
      float last[Isa::kLanes];
      Isa::Store(last, Decoder::DecodePartial(row, static_cast<int>(count - k)));
      for (int i = 0; i < count - k; ++i) out[i] = last[i];
    }
  }
}

// kN rows of x from n on times 4 float weight rows from m on.
template <class Isa, int kN>
PM_INLINE void PanelTile(const Operands& o, const Panel& p, int64_t n, int64_t m) {
  using Vec = typename Isa::Vec;
  const uint8_t* w[kTileM];
  const float* x[kN];
  Vec sums[kN][kTileM];
  for (int i = 0; i < kTileM; ++i) {
    const int64_t row = m + i < p.m_end ? m + i : p.m_end - 1;
    w[i] = p.rows + (row - p.m_begin) * p.stride;
  }
  for (int j = 0; j < kN; ++j) {
    x[j] = o.x + (n + j) * o.x_stride;
    for (int i = 0; i < kTileM; ++i) sums[j][i] = Isa::Zero();
  }
  int64_t k = 0;
  for (; k + Isa::kLanes <= o.k; k += Isa::kLanes) {
    Vec inputs[kN];
    for (int j = 0; j < kN; ++j) inputs[j] = Isa::Load(x[j] + k);
    for (int i = 0; i < kTileM; ++i) {
      const Vec weights = Isa::Load(w[i] + k * 4);
      for (int j = 0; j < kN; ++j) sums[j][i] = Isa::Fma(weights, inputs[j], sums[j][i]);
    }
  }
  if (k < o.k) {
    const int count = static_cast<int>(o.k - k);
    for (int i = 0; i < kTileM; ++i) {
      const Vec weights = Isa::LoadPartial(w[i] + k * 4, count);
      for (int j = 0; j < kN; ++j) {
        sums[j][i] = Isa::Fma(weights, Isa::LoadPartial(x[j] + k, count), sums[j][i]);
      }
    }
  }
  for (int j = 0; j < kN; ++j) StoreOutputs<Isa>(o, sums[j], n + j, m, p.m_end);
}

template <class Isa, int kN>
void PanelStrip(const Operands& o, const Panel& p, int64_t n) {
  for (int64_t m = p.m_begin; m < p.m_end; m += kTileM) PanelTile<Isa, kN>(o, p, n, m);
}

// The strip of `count` rows of x, 1 <= count <= kN.
template <class Isa, int kN>
void PanelStripOf(const Operands& o, const Panel& p, int64_t n, int64_t count) {
  if constexpr (kN > 1) {
    if (count < kN) return PanelStripOf<Isa, kN - 1>(o, p, n, count);
  }
  PanelStrip<Isa, kN>(o, p, n);
}

// Strips of x of nearly equal height stay in L1 while the panel streams from L2.
template <class Isa>
void MultiplyPanel(const Operands& o, const Panel& p) {
  const int64_t strips = (o.n + Isa::kTileN - 1) / Isa::kTileN;
  for (int64_t s = 0; s < strips; ++s) {
    const int64_t begin = s * o.n / strips;
    const int64_t end = (s + 1) * o.n / strips;
    PanelStripOf<Isa, Isa::kTileN>(o, p, begin, end - begin);
  }
}

// Calls f.template operator()<Decoder>() for the decoder of a weight dtype.
template <class Isa, class F>
PM_INLINE void WithDecoder(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF32:
      return f.template operator()<typename Isa::template Decoder<DType::kF32>>();
    case DType::kBF16:
      return f.template operator()<typename Isa::template Decoder<DType::kBF16>>();
    case DType::kF16:
      return f.template operator()<typename Isa::template Decoder<DType::kF16>>();
    case DType::kQ4_0:
      return f.template operator()<typename Isa::template Decoder<DType::kQ4_0>>();
    case DType::kQ4_1:
      return f.template operator()<typename Isa::template Decoder<DType::kQ4_1>>();
    case DType::kQ5_0:
      return f.template operator()<typename Isa::template Decoder<DType::kQ5_0>>();
    case DType::kQ8_0:
      return f.template operator()<typename Isa::template Decoder<DType::kQ8_0>>();
    case DType::kQ4_K:
      return f.template operator()<typename Isa::template Decoder<DType::kQ4_K>>();
    case DType::kQ5_K:
      return f.template operator()<typename Isa::template Decoder<DType::kQ5_K>>();
    case DType::kQ6_K:
      return f.template operator()<typename Isa::template Decoder<DType::kQ6_K>>();
    case DType::kI32:
    case DType::kI8:
    case DType::kU8:
      return;  // excluded by the op's check
  }
}

template <class Isa>
void Direct(const Operands& o, int64_t m_begin, int64_t m_end) {
  WithDecoder<Isa>(o.dtype, [&]<class Decoder>() { DirectRows<Isa, Decoder>(o, m_begin, m_end); });
}

template <class Isa>
void Dequantize(DType dtype, const uint8_t* row, int64_t k, float* out) {
  WithDecoder<Isa>(dtype, [&]<class Decoder>() { DequantizeBlocks<Isa, Decoder>(row, k, out); });
}

template <class Isa>
inline constexpr KernelSet kKernelSetOf{Isa::kDirectN, Direct<Isa>, Dequantize<Isa>,
                                        MultiplyPanel<Isa>};

}  // namespace pagemill::ops::linear

#undef PM_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_KERNEL_SET_INL_H_
