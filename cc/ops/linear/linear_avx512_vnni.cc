// `linear` on activations quantized to int8, with AVX-512 VNNI. The layout of quantized rows and
// the order of accumulation are in int8_kernel_set.h.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/block_format/decoder_avx512_vnni.h"
#include "cc/ops/linear/int8_kernel_set.h"
#include "cc/ops/linear/linear_avx512_vnni_panel.h"

#define PM_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int64_t kMaxDirectN = 8;
constexpr int64_t kDirectTileN = 4;
constexpr int kTileM = 4;  // weight rows of a register tile

// Below this a block counts as zero, so that 127 / its largest value is finite.
constexpr float kSmallestBlock = 0x1p-100f;

// Sums of the lanes of four registers of 4 lanes of 128 bits: element 4 * j + r of the result is
// the sum of lane j of v[r].
PM_INLINE __m512i SumQuads(const __m512i v[4]) {
  const __m512i a =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i b =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// `Combine` over all 16 elements of each of four registers: of v[j] in elements 4 * j .. 4 * j + 3.
template <class Combine>
PM_INLINE __m512i Reduce4(const __m512i v[4], const Combine& combine) {
  const __m512i a =
      combine(_mm512_shuffle_i64x2(v[0], v[1], 0x44), _mm512_shuffle_i64x2(v[0], v[1], 0xee));
  const __m512i b =
      combine(_mm512_shuffle_i64x2(v[2], v[3], 0x44), _mm512_shuffle_i64x2(v[2], v[3], 0xee));
  __m512i r = combine(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
  r = combine(r, _mm512_shuffle_epi32(r, _MM_PERM_BADC));
  return combine(r, _mm512_shuffle_epi32(r, _MM_PERM_CDAB));
}

// The first `count` floats at `from`, then zeros; count may be out of 0..16.
PM_INLINE __m512 LoadUpTo(const float* from, int64_t count) {
  if (count >= 16) return _mm512_loadu_ps(from);
  const uint32_t bits = count <= 0 ? 0u : (1u << count) - 1u;
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(bits), from);
}

// 16 integers to bytes at `out`; of two planes, the upper ones there and the lower ones beyond.
template <int kPlanes>
PM_INLINE void StorePlanes(__m512i integers, uint8_t* out) {
  __m512i upper = integers;
  if constexpr (kPlanes == 2) {
    upper = _mm512_srai_epi32(_mm512_add_epi32(integers, _mm512_set1_epi32(64)), 7);
    const __m512i lower = _mm512_sub_epi32(integers, _mm512_slli_epi32(upper, 7));
    _mm_store_si128(reinterpret_cast<__m128i*>(out + kLowerPlaneOfX), _mm512_cvtepi32_epi8(lower));
  }
  _mm_store_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(upper));
}

template <class Decoder, int kPlanes>
void QuantizeRow(const float* x, int64_t k, uint8_t* out) {
  constexpr float kLargest = kPlanes == 1 ? 127 : 127 * 128;
  const auto max = [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); };
  const auto add = [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); };
  for (int64_t at = 0; at < k; at += kGroupElements, out += GroupBytesOfX(kPlanes)) {
    __m512 values[8];
    __m512i largest[4];
    // As integers, magnitudes are in the order of their values and NaN is above all: the scale of a
    // block with a NaN is NaN, and so are all outputs of the row.
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) values[i] = LoadUpTo(x + at + 16 * i, k - at - 16 * i);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      largest[j] = max(_mm512_and_si512(_mm512_castps_si512(values[2 * j]), magnitude),
                       _mm512_and_si512(_mm512_castps_si512(values[2 * j + 1]), magnitude));
    }
    const __m512 top = _mm512_castsi512_ps(Reduce4(largest, max));
    const __mmask16 used = _mm512_cmp_ps_mask(top, _mm512_set1_ps(kSmallestBlock), _CMP_NLT_UQ);
    const __m512 scale = _mm512_maskz_mul_ps(used, top, _mm512_set1_ps(1 / kLargest));
    const __m512i inverse =
        _mm512_castps_si512(_mm512_maskz_div_ps(used, _mm512_set1_ps(kLargest), top));
    const __m512 inverses[4] = {_mm512_castsi512_ps(_mm512_shuffle_i32x4(inverse, inverse, 0x00)),
                                _mm512_castsi512_ps(_mm512_shuffle_i32x4(inverse, inverse, 0x55)),
                                _mm512_castsi512_ps(_mm512_shuffle_i32x4(inverse, inverse, 0xaa)),
                                _mm512_castsi512_ps(_mm512_shuffle_i32x4(inverse, inverse, 0xff))};
    __m512i sums[4];  // of whole blocks, or of first halves
    __m512i others[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(values[2 * j], inverses[j]));
      const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(values[2 * j + 1], inverses[j]));
      StorePlanes<kPlanes>(a, out + 16 * j);
      StorePlanes<kPlanes>(b, out + 64 + 16 * j);
      sums[j] = Decoder::kHasHalfScales ? a : add(a, b);
      others[j] = b;
    }
    _mm512_store_ps(reinterpret_cast<float*>(out + 128), scale);
    const __m512i sum = Reduce4(sums, add);
    if constexpr (Decoder::kHasMinimum) {
      _mm512_store_ps(reinterpret_cast<float*>(out + 192),
                      _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
    } else {
      const __m512i factor = _mm512_set1_epi32(-Decoder::kZeroPoint);
      __m512i offsets = _mm512_maskz_mullo_epi32(0x1111, sum, factor);
      if constexpr (Decoder::kHasHalfScales) {
        offsets = _mm512_mask_mullo_epi32(offsets, 0x2222, Reduce4(others, add), factor);
      }
      _mm512_store_si512(out + 192, offsets);
    }
  }
}

// The integer products of a group with four weight rows, block j of row r in element 4 * j + r.
template <class Decoder, int kPlanes>
PM_INLINE __m512i MultiplyGroup(const ByteGroup& w, const uint8_t* x) {
  const __m512i a = _mm512_load_si512(x);
  const __m512i b = _mm512_load_si512(x + 64);
  const __m512i a_lower = kPlanes == 1 ? a : _mm512_load_si512(x + kLowerPlaneOfX);
  const __m512i b_lower = kPlanes == 1 ? b : _mm512_load_si512(x + kLowerPlaneOfX + 64);
  const __m512i start = Decoder::kHasMinimum ? _mm512_setzero_si512() : _mm512_load_si512(x + 192);
  __m512i products[4];
  if constexpr (Decoder::kHasHalfScales) {
    __m512i others[4];
    const __m512i a_start = _mm512_maskz_mov_epi32(0x1111, start);
    const __m512i b_start = _mm512_maskz_mov_epi32(0x2222, start);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      if constexpr (kPlanes == 1) {
        products[r] = _mm512_dpbusd_epi32(a_start, w.a[r], a);
        others[r] = _mm512_dpbusd_epi32(b_start, w.b[r], b);
      } else {
        const __m512i zero = _mm512_setzero_si512();
        products[r] = vnni::Raise(_mm512_dpbusd_epi32(zero, w.a[r], a), a_start);
        products[r] = _mm512_dpbusd_epi32(products[r], w.a[r], a_lower);
        others[r] = vnni::Raise(_mm512_dpbusd_epi32(zero, w.b[r], b), b_start);
        others[r] = _mm512_dpbusd_epi32(others[r], w.b[r], b_lower);
      }
    }
    return _mm512_add_epi32(_mm512_mullo_epi32(SumQuads(products), w.a_scale),
                            _mm512_mullo_epi32(SumQuads(others), w.b_scale));
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const __m512i zero = _mm512_setzero_si512();
      products[r] = kPlanes == 1 ? start : zero;
      products[r] = _mm512_dpbusd_epi32(products[r], w.a[r], a);
      products[r] = _mm512_dpbusd_epi32(products[r], w.b[r], b);
      if constexpr (kPlanes == 2) {
        products[r] = vnni::Raise(products[r], start);
        products[r] = _mm512_dpbusd_epi32(products[r], w.a[r], a_lower);
        products[r] = _mm512_dpbusd_epi32(products[r], w.b[r], b_lower);
      }
    }
    return SumQuads(products);
  }
}

// Adds a group to the chains of kN rows of x times 4 weight rows.
template <class Decoder, int kPlanes, int kN, bool kFull>
PM_INLINE void DirectGroup(const uint8_t* const w[kTileM], const uint8_t* const x[kN],
                           int64_t group, int blocks, __m512 chains[kN]) {
  ByteGroup g;
  Decoder::template Decode<kFull>(w, group, blocks, &g);
#pragma GCC unroll 4
  for (int n = 0; n < kN; ++n) {
    const uint8_t* from = x[n] + group * GroupBytesOfX(kPlanes);
    const __m512 products = _mm512_cvtepi32_ps(MultiplyGroup<Decoder, kPlanes>(g, from));
    const __m512 scale = _mm512_mul_ps(g.scale, _mm512_load_ps(from + 128));
    chains[n] = _mm512_fmadd_ps(products, scale, chains[n]);
    if constexpr (Decoder::kHasMinimum) {
      chains[n] = _mm512_fmadd_ps(g.minimum, _mm512_load_ps(from + 192), chains[n]);
    }
  }
}

// y[n][m .. m + 3] from the chains; those past m_end are dropped.
PM_INLINE void StoreRow(const Operands& o, __m512 chains, int64_t n, int64_t m, int64_t m_end) {
  __m128 out = _mm_add_ps(_mm512_castps512_ps128(chains), _mm512_extractf32x4_ps(chains, 1));
  out = _mm_add_ps(out, _mm512_extractf32x4_ps(chains, 2));
  out = _mm_add_ps(out, _mm512_extractf32x4_ps(chains, 3));
  const __mmask8 used = m + kTileM <= m_end ? 15 : static_cast<__mmask8>((1 << (m_end - m)) - 1);
  if (o.bias != nullptr) out = _mm_add_ps(out, _mm_maskz_loadu_ps(used, o.bias + m));
  _mm_mask_storeu_ps(o.y + n * o.y_stride + m, used, out);
}

template <class Decoder, int kPlanes, int kN>
PM_INLINE void DirectTile(const Int8Operands& o, int64_t first_n, int64_t m, int64_t m_end) {
  const uint8_t* w[kTileM];
  const uint8_t* x[kN];
  __m512 chains[kN];
#pragma GCC unroll 4
  for (int i = 0; i < kTileM; ++i) {
    w[i] = o.call.weights + (m + i < m_end ? m + i : m_end - 1) * o.call.weight_stride;
  }
#pragma GCC unroll 4
  for (int n = 0; n < kN; ++n) {
    x[n] = o.x + (first_n + n) * o.x_stride_bytes;
    chains[n] = _mm512_setzero_ps();
  }
  const uint8_t* ahead = w[0] + vnni::kPrefetchBytes;
  const int64_t groups = o.call.k / kGroupElements;
  for (int64_t g = 0; g < groups; ++g) {
    vnni::Prefetch(ahead, kTileM * Decoder::kGroupBytes);
    ahead += kTileM * Decoder::kGroupBytes;
    DirectGroup<Decoder, kPlanes, kN, true>(w, x, g, 4, chains);
  }
  const int left = static_cast<int>(o.call.k % kGroupElements / 32);
  if (left > 0) DirectGroup<Decoder, kPlanes, kN, false>(w, x, groups, left, chains);
#pragma GCC unroll 4
  for (int n = 0; n < kN; ++n) StoreRow(o.call, chains[n], first_n + n, m, m_end);
}

// All rows of x against one tile of weight rows, which stays in L1 meanwhile.
template <class Decoder, int kPlanes>
void DirectRows(const Int8Operands& o, int64_t m_begin, int64_t m_end) {
  const int64_t tiles = (o.call.n + kDirectTileN - 1) / kDirectTileN;
  for (int64_t m = m_begin; m < m_end; m += kTileM) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t n = t * o.call.n / tiles;
      switch ((t + 1) * o.call.n / tiles - n) {
        case 1:
          DirectTile<Decoder, kPlanes, 1>(o, n, m, m_end);
          break;
        case 2:
          DirectTile<Decoder, kPlanes, 2>(o, n, m, m_end);
          break;
        case 3:
          DirectTile<Decoder, kPlanes, 3>(o, n, m, m_end);
          break;
        default:
          DirectTile<Decoder, kPlanes, 4>(o, n, m, m_end);
      }
    }
  }
}

// Calls f.template operator()<Decoder>() for the decoder of a block format.
template <class F>
PM_INLINE void WithDecoder(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kQ4_0:
      return f.template operator()<ByteDecoder<DType::kQ4_0>>();
    case DType::kQ4_1:
      return f.template operator()<ByteDecoder<DType::kQ4_1>>();
    case DType::kQ5_0:
      return f.template operator()<ByteDecoder<DType::kQ5_0>>();
    case DType::kQ8_0:
      return f.template operator()<ByteDecoder<DType::kQ8_0>>();
    case DType::kQ4_K:
      return f.template operator()<ByteDecoder<DType::kQ4_K>>();
    case DType::kQ5_K:
      return f.template operator()<ByteDecoder<DType::kQ5_K>>();
    case DType::kQ6_K:
      return f.template operator()<ByteDecoder<DType::kQ6_K>>();
    default:
      return;  // excluded by the row's `supports`
  }
}

template <int kPlanes>
void Quantize(DType dtype, const float* x, int64_t k, uint8_t* out) {
  WithDecoder(dtype, [&]<class Decoder>() { QuantizeRow<Decoder, kPlanes>(x, k, out); });
}

template <int kPlanes>
void Direct(const Int8Operands& o, int64_t m_begin, int64_t m_end) {
  WithDecoder(o.call.dtype,
              [&]<class Decoder>() { DirectRows<Decoder, kPlanes>(o, m_begin, m_end); });
}

int64_t PanelBytes(DType dtype, int64_t k) {
  int64_t bytes = 0;
  WithDecoder(dtype, [&]<class Decoder>() { bytes = vnni::PanelBytes<Decoder>(k); });
  return bytes;
}

void Pack(const Operands& call, int64_t m_begin, int64_t m_end, uint8_t* panel) {
  WithDecoder(call.dtype,
              [&]<class Decoder>() { vnni::PackPanel<Decoder>(call, m_begin, m_end, panel); });
}

template <int kPlanes>
void Multiply(const Int8Operands& o, const uint8_t* panel, int64_t m_begin, int64_t m_end) {
  WithDecoder(o.call.dtype, [&]<class Decoder>() {
    vnni::MultiplyPanel<Decoder, kPlanes>(o, panel, m_begin, m_end);
  });
}

template <int kPlanes>
constexpr Int8KernelSet MakeKernels() {
  return {kPlanes,    kMaxDirectN, Quantize<kPlanes>, Direct<kPlanes>,
          PanelBytes, Pack,        Multiply<kPlanes>};
}

}  // namespace

constinit const Int8KernelSet kAvx512VnniKernels = MakeKernels<1>();
constinit const Int8KernelSet kAvx512VnniInt16Kernels = MakeKernels<2>();

}  // namespace pagemill::ops::linear
