// Products of scaled f8_e4m3 weights with x rounded to bf16: weights are widened to bf16, exactly,
// in registers, then VDPBF16PS multiplies two elements of k of 16 outputs at a time.
//
// Order of accumulation: one chain per output and block, pairs of k ascending (the product of the
// odd element first); blocks ascending, each times its scale; then the bias.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/scaled/activation_tiles_avx512.h"
#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_outputs_avx512.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::scaled {
namespace {

constexpr int kTileN = 8;  // 16 sums, 4 registers of tables, 4 of weights
constexpr int64_t kMaxChunkRows = 12 * kTileN;
constexpr int64_t kPrefetchBytes = 8192;
constexpr int64_t kPairElements = 2;

PAGEMILL_INLINE ActivationShape ShapeOf(int64_t n, int64_t k) {
  return {n, PaddedK(k) / kPairElements, 0, kTileN};
}

int64_t ChunkBytes(DType, int64_t n, int64_t k) { return ShapeOf(n, k).bytes(); }

void Prepare(DType, const linear::InputRows& x, uint8_t* chunk) {
  const ActivationShape shape = ShapeOf(x.n, x.k);
  for (int64_t t = 0; t < shape.tiles(); ++t) {
    const ActivationTile tile = shape.Tile(t);
    const int64_t stride = tile.rows() * kUnitBytes;
    for (int64_t i = 0; i < tile.rows(); i += 4) {
      if (!x.Prepares(tile.begin + i)) continue;
      const int64_t rows = tile.rows() - i < 4 ? tile.rows() - i : 4;
      uint8_t* to = chunk + tile.offset + i * kUnitBytes;
      for (int64_t at = 0; at < PaddedK(x.k); at += 32, to += 16 * stride) {
        __m512i pairs[4];
        for (int64_t r = 0; r < rows; ++r) {
          const float* const from = x.rows + (tile.begin + i + r) * x.stride + at;
          const __m512 low = _mm512_maskz_loadu_ps(FirstLanes(x.k - at), from);
          const __m512 high = _mm512_maskz_loadu_ps(FirstLanes(x.k - at - 16), from + 16);
          pairs[r] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
        }
        StoreUnits(pairs, rows, stride, to);
      }
    }
  }
}

// Lookup tables of VPERMI2W: the bf16 of each e4m3 code without its sign, codes 0 to 63 and 64 to
// 127.
struct Tables {
  __m512i low[2];
  __m512i high[2];
};

// The bits of the bf16 of code 0 to 127.
constexpr uint16_t Bf16OfCode(int code) {
  if (code == 127) return 0x7fc0;
  if (code >= 8) return static_cast<uint16_t>((code << 4) + (120 << 7));
  int mantissa = code, exponent = 121;  // code * 2^-9, normalized
  if (code == 0) return 0;
  while (mantissa < 8) mantissa *= 2, --exponent;
  return static_cast<uint16_t>((exponent << 7) | (mantissa & 7) << 4);
}

struct alignas(64) CodeTable {
  uint16_t bits[128];
};

constexpr CodeTable MakeCodeTable() {
  CodeTable table{};
  for (int code = 0; code < 128; ++code) table.bits[code] = Bf16OfCode(code);
  return table;
}

constexpr CodeTable kCodes = MakeCodeTable();

PAGEMILL_INLINE Tables LoadTables() {
  return {{_mm512_load_si512(kCodes.bits), _mm512_load_si512(kCodes.bits + 32)},
          {_mm512_load_si512(kCodes.bits + 64), _mm512_load_si512(kCodes.bits + 96)}};
}

// Widens the e4m3 codes in the lower bytes of 16-bit lanes to bf16; `signs` has their signs in the
// upper bit.
PAGEMILL_INLINE __m512bh Widen(const Tables& tables, __m512i codes, __m512i signs) {
  const __m512i low = _mm512_permutex2var_epi16(tables.low[0], codes, tables.low[1]);
  const __m512i high = _mm512_permutex2var_epi16(tables.high[0], codes, tables.high[1]);
  const __mmask32 is_high = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
  const __m512i magnitude = _mm512_mask_mov_epi16(low, is_high, high);
  // magnitude | (signs & 0x8000)
  return reinterpret_cast<__m512bh>(
      _mm512_ternarylogic_epi32(magnitude, signs, _mm512_set1_epi16(-0x8000), 0xf8));
}

// sum += w * x, two products per lane. With the intrinsic, GCC 12 copies the sums from register to
// register, which takes a third of the time.
PAGEMILL_INLINE void AddProducts(__m512& sum, __m512bh w, __m512bh x) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
}

// Multiplies kN rows of x with a quad of the slice.
template <int kN>
PAGEMILL_INLINE void AddQuad(const Tables& tables, const uint8_t* w, const uint8_t* x,
                             __m512 (*sums)[2]) {
  __m512bh weights[2][2];  // of both pairs, of both halves of the slice
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m512i quads = _mm512_load_si512(w + 64 * h);
    weights[0][h] = Widen(tables, quads, _mm512_slli_epi16(quads, 8));
    weights[1][h] = Widen(tables, _mm512_srli_epi16(quads, 8), quads);
  }
#pragma GCC unroll 2
  for (int pair = 0; pair < 2; ++pair) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      int32_t unit;
      __builtin_memcpy(&unit, x + (pair * kN + n) * kUnitBytes, kUnitBytes);
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(unit));
      AddProducts(sums[n][0], weights[pair][0], both);
      AddProducts(sums[n][1], weights[pair][1], both);
    }
  }
}

PAGEMILL_INLINE void Store(const linear::PackedProduct& p, __m512 sum, float* y, int64_t first) {
  const __mmask16 used = FirstLanes(p.m - first);
  if (p.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(used, p.bias + first));
  _mm512_mask_storeu_ps(y + first, used, sum);
}

// Multiplies kN rows of x with the slice; kFirst if the slice is read for the first time.
template <int kN, bool kFirst>
PAGEMILL_INLINE void MultiplyTile(const linear::PackedProduct& p, const ActivationTile& tile) {
  const Tables tables = LoadTables();
  const uint8_t* w = p.weights;
  const uint8_t* x = p.activations + tile.offset;
  const int64_t padded = PaddedK(p.k);
  __m512 total[kN][2];
#pragma GCC unroll 8
  for (int n = 0; n < kN; ++n) total[n][0] = total[n][1] = _mm512_setzero_ps();
  int64_t block = 0;
  for (int64_t begin = 0; begin < p.k; begin += p.scales.block_columns, ++block) {
    const int64_t left = padded - begin;
    const int64_t columns = left < p.scales.block_columns ? left : p.scales.block_columns;
    __m512 sums[kN][2];
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) sums[n][0] = sums[n][1] = _mm512_setzero_ps();
    for (int64_t k = 0; k < columns; k += kQuadBytes) {
      if constexpr (kFirst) {
        _mm_prefetch(reinterpret_cast<const char*>(w + kPrefetchBytes), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(w + kPrefetchBytes + 64), _MM_HINT_T0);
      }
      AddQuad<kN>(tables, w, x, sums);
      w += kSliceQuadBytes;
      x += 2 * kN * kUnitBytes;
    }
    const __m512 scales[2] = {LoadScales(p, 0, block), LoadScales(p, 16, block)};
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      total[n][0] = _mm512_fmadd_ps(sums[n][0], scales[0], total[n][0]);
      total[n][1] = _mm512_fmadd_ps(sums[n][1], scales[1], total[n][1]);
    }
  }
  float* y = p.y + tile.begin * p.y_stride;
#pragma GCC unroll 8
  for (int n = 0; n < kN; ++n, y += p.y_stride) {
    Store(p, total[n][0], y, 0);
    if (p.m > 16) Store(p, total[n][1], y, 16);
  }
}

void Multiply(const linear::PackedProduct& p) {
  ForEachTile<kTileN>(ShapeOf(p.n, p.k), [&]<int kN, bool kFirst>(const ActivationTile& tile) {
    MultiplyTile<kN, kFirst>(p, tile);
  });
}

}  // namespace

constinit const linear::PackedGemm kAvx512Bf16Kernels = {
    kMaxChunkRows, ScaledSliceBytes, PackScaledSlice, ChunkBytes, Prepare, Multiply};

}  // namespace pagemill::ops::scaled
