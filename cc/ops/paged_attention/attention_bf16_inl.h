// File: cc/ops/paged_attention/attention_bf16_inl.h
// The three steps over one chunk of keys with AVX512-BF16's dot products of pairs: scores sum pairs
// of dimensions, values pairs of keys. Queries and weights are rounded to bf16, sums are f32.
// Include it after vec_avx512.h, in a file compiled with the avx512_bf16 flags.
//
// Sums follow the order of AVX512-BF16 or that of AMX tiles (DotOrder), so that vectors and tiles
// give the same bits. Keys and values of f8_e4m3 are converted exactly to pairs of bf16: the byte
// permutation of AVX512-VBMI looks up the two bytes of a bf16 number in tables of 128.
//
// As in attention_chunk_inl.h, every score and every element of an accumulator is one chain,
// whatever the number of rows that a register block handles at once. A chunk is a whole split, so
// nothing is ever rescaled. Pairs are at absolute positions: keys 2 i and 2 i + 1. If a row sees
// only one key of a pair, the other's values are replaced by 0.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_BF16_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_BF16_INL_H_

#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "cc/ops/paged_attention/attention_split_inl.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

enum class DotOrder {
  kPairs,  // one chain, pair after pair
  kTiles,  // per 32 elements, a chain of the even and one of the odd ones (tile_band.h)
};

constexpr int kPairsPerBlock = 16;  // of kTiles

inline __m512 Dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// Queries and weights as they are multiplied: bf16, or the same numbers as f32.
template <DotOrder kOrder>
using DotFactor = std::conditional_t<kOrder == DotOrder::kTiles, float, uint16_t>;

// An operand of a sum: a pair of bf16 in each lane. kTiles: each number of the pair as f32.
template <DotOrder kOrder>
struct DotOperand {
  __m512i pairs;
  explicit DotOperand(__m512i p) : pairs(p) {}
  // The pair at `factors` in all lanes.
  explicit DotOperand(const uint16_t* factors) {
    int32_t bits;
    __builtin_memcpy(&bits, factors, sizeof(bits));
    pairs = _mm512_set1_epi32(bits);
  }
};
template <>
struct DotOperand<DotOrder::kTiles> {
  __m512 even, odd;
  explicit DotOperand(__m512i pairs)
      : even((__m512)_mm512_slli_epi32(pairs, 16)),
        odd((__m512)_mm512_andnot_si512(_mm512_set1_epi32(0xffff), pairs)) {}
  explicit DotOperand(const float* factors)
      : even(_mm512_set1_ps(factors[0])), odd(_mm512_set1_ps(factors[1])) {}
};

// kTiles by multiply-adds of f32: a Sapphire Rapids does four of them in the time of a VDPBF16PS.
// Tiles flush subnormal numbers to 0, so the caller lets multiply-adds do so, too.
template <DotOrder kOrder>
struct DotSum {
  __m512 sum = _mm512_setzero_ps();
  void Add(const DotOperand<kOrder>& a, const DotOperand<kOrder>& b) {
    sum = Dot(sum, a.pairs, b.pairs);
  }
  void EndBlock() {}
};
template <>
struct DotSum<DotOrder::kTiles> {
  __m512 sum = _mm512_setzero_ps(), even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  void Add(const DotOperand<DotOrder::kTiles>& a, const DotOperand<DotOrder::kTiles>& b) {
    even = _mm512_fmadd_ps(a.even, b.even, even);
    odd = _mm512_fmadd_ps(a.odd, b.odd, odd);
  }
  void EndBlock() {
    sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
    even = odd = _mm512_setzero_ps();
  }
};

// Bytes to permute registers with.
template <int kSize>
struct ByteTable {
  alignas(64) uint8_t bytes[kSize] = {};
  __m512i Part(int i) const { return _mm512_load_si512(bytes + 64 * i); }
};

// Byte `byte` (0: the low byte) of the bf16 number of each code without its sign.
constexpr ByteTable<128> Bf16Bytes(int byte) {
  ByteTable<128> table;
  for (int code = 0; code < 128; ++code) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, F8E4M3ToFloat(static_cast<uint8_t>(code)));
    table.bytes[code] = static_cast<uint8_t>(bits >> (16 + 8 * byte));
  }
  return table;
}
constexpr ByteTable<128> kLowBytes = Bf16Bytes(0), kHighBytes = Bf16Bytes(1);

// Two rows of 16 keys, [4, 16], or two values, [2, 32], as pairs: unpacking widens the lower half
// of each quarter into one register and the upper half into another.
constexpr ByteTable<64> KeyOrder() {
  ByteTable<64> order;
  for (int i = 0; i < 64; ++i) {
    const int quarter = i / 16, pair = i / 8 % 2, key = 4 * quarter + i / 2 % 4;
    order.bytes[i] = static_cast<uint8_t>((2 * pair + i % 2) * 16 + key);
  }
  return order;
}
constexpr ByteTable<64> ValueOrder() {
  ByteTable<64> order;
  for (int i = 0; i < 64; ++i) order.bytes[i] = static_cast<uint8_t>(i % 2 * 32 + i / 2);
  return order;
}
constexpr ByteTable<64> kKeyOrder = KeyOrder(), kValueOrder = ValueOrder();

// The instructions as assembly: the files are not compiled for AVX512-VBMI, which other kernels in
// them do not need. avx512_vbmi of capabilities.h tells if the CPU has it.
inline __m512i PermuteBytes(__m512i order, __m512i bytes) {
  __m512i result;
  asm("vpermb %2, %1, %0" : "=v"(result) : "v"(order), "v"(bytes));
  return result;
}
inline __m512i LookUp(__m512i codes, const ByteTable<128>& table) {
  asm("vpermi2b %2, %1, %0" : "+v"(codes) : "v"(table.Part(0)), "v"(table.Part(1)));
  return codes;
}

// Widens the lower and the upper 8 codes of each quarter.
inline void WidenF8(__m512i codes, __m512i* lower, __m512i* upper) {
  const __m512i low = LookUp(codes, kLowBytes);
  // magnitude | (code & sign)
  const __m512i high =
      _mm512_ternarylogic_epi32(LookUp(codes, kHighBytes), codes, _mm512_set1_epi8(-128), 0xf8);
  *lower = _mm512_unpacklo_epi8(low, high);
  *upper = _mm512_unpackhi_epi8(low, high);
}

// Four dimensions of 16 keys, of which `dims` exist (others are 0), as pairs: the first two and the
// last two. kAdjacent: they are contiguous, and all exist.
template <bool kAdjacent>
inline void LoadF8Keys(const uint8_t* key, int64_t stride, int dims, __m512i* pairs) {
  __m512i rows;
  if constexpr (kAdjacent) {
    rows = _mm512_loadu_si512(key);
  } else {
    const auto row = [&](int d) {
      return d < dims ? _mm_loadu_si128((const __m128i*)(key + d * stride)) : _mm_setzero_si128();
    };
    rows = _mm512_castsi128_si512(row(0));
    rows = _mm512_inserti32x4(rows, row(1), 1);
    rows = _mm512_inserti32x4(rows, row(2), 2);
    rows = _mm512_inserti32x4(rows, row(3), 3);
  }
  WidenF8(PermuteBytes(kKeyOrder.Part(0), rows), &pairs[0], &pairs[1]);
}

// `dims` dimensions of a value, at most 32; others are 0.
inline __m256i LoadF8Value(const uint8_t* value, int dims) {
  if (dims >= kDotUnit) return _mm256_loadu_si256((const __m256i*)value);
  return _mm256_maskz_loadu_epi8((uint32_t{1} << dims) - 1, value);
}

// Pairs two values of LoadF8Value in the order of unpacked bf16 numbers.
inline void PairF8Values(__m256i a, __m256i b, __m512i* lower, __m512i* upper) {
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  WidenF8(PermuteBytes(kValueOrder.Part(0), both), lower, upper);
}

constexpr int kDotChunk = kAttentionSplit;

using DotSide = ChunkSide<uint16_t, kSplitGroups>;

// Layout of keys and values.
enum class PageForm {
  kAdjacent,  // in the cache, blocks of 16 keys, an even head_dim: dimensions d, d + 1 side by side
  kStrided,   // in the cache
  kPaired,    // in scratch: PairKeys and PairValues have put pairs side by side
  kAdjacentF8,  // in the cache, as f8_e4m3: blocks of 16 keys, a head_dim of whole fours
  kStridedF8,   // in the cache, as f8_e4m3
};
constexpr bool IsF8(PageForm form) {
  return form == PageForm::kAdjacentF8 || form == PageForm::kStridedF8;
}
template <PageForm kForm>
using PageElement = std::conditional_t<IsF8(kForm), uint8_t, uint16_t>;
template <PageForm kForm>
using PageSide = ChunkSide<PageElement<kForm>, kSplitGroups>;

// Pairs of dimensions that are loaded together.
template <PageForm kForm>
constexpr int kPairsAtOnce = IsF8(kForm) ? 2 : 1;

// Loads the next dimensions of 16 keys, a pair in each lane; zeros beyond the `dims` existing ones.
template <PageForm kForm>
inline void LoadKeys(const PageElement<kForm>* key, int block_size, int dims,
                     __m512i (&pairs)[kPairsAtOnce<kForm>]) {
  if constexpr (IsF8(kForm)) {
    LoadF8Keys<kForm == PageForm::kAdjacentF8>(key, block_size, dims, pairs);
  } else if (kForm == PageForm::kPaired) {
    pairs[0] = _mm512_loadu_si512(key);
  } else if (kForm == PageForm::kStrided && dims == 1) {
    pairs[0] = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)key));
  } else {
    const __m512i both =
        kForm == PageForm::kAdjacent
            ? _mm512_loadu_si512(key)
            : _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)key)),
                                 _mm256_loadu_si256((const __m256i*)(key + block_size)), 1);
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    pairs[0] = _mm512_permutexvar_epi16(order, both);
  }
}

// scores[r][16 g + j] = q[r] key[g][j] for kRows rows and kGroups groups from `first`.
template <int kRows, int kGroups, PageForm kForm, DotOrder kOrder>
[[gnu::noinline]] void DotScoreBlock(const AttentionShape& shape, const DotFactor<kOrder>* q,
                                     const PageSide<kForm>& side, int first, float* scores) {
  DotSum<kOrder> sum[kRows][kGroups];
  const PageElement<kForm>* keys[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) keys[g] = side.at[first + g];
  const PageElement<kForm>* ahead[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) ahead[g] = side.ahead[first + g];
  const uintptr_t zero = OpaqueZero();
  const auto add = [&](const __m512i* key, int d) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const DotOperand<kOrder> factor(q + r * shape.padded_dim + d);
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) sum[r][g].Add(factor, DotOperand<kOrder>(key[g]));
    }
  };
  const auto end_block = [&] {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) sum[r][g].EndBlock();
    }
  };
  constexpr int kPairs = kPairsAtOnce<kForm>;
  const int step =
      2 * kPairs * (kForm == PageForm::kPaired ? kAttentionKeyGroup : shape.block_size);
  for (int d = 0; d < shape.head_dim; d += 2 * kPairs) {
    __m512i key[kPairs][kGroups];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      __m512i pairs[kPairs];
      LoadKeys<kForm>(keys[g], shape.block_size, shape.head_dim - d, pairs);
      for (int i = 0; i < kPairs; ++i) key[i][g] = pairs[i];
      if constexpr (kForm != PageForm::kPaired) PrefetchAfter(keys[g], ahead[g], zero);
      keys[g] += step;
      ahead[g] += step;
    }
    for (int i = 0; i < kPairs; ++i) add(key[i], d + 2 * i);
    if (kOrder == DotOrder::kTiles && (d / 2 + kPairs) % kPairsPerBlock == 0) end_block();
  }
  end_block();
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      _mm512_storeu_ps(scores + r * kDotChunk + (first + g) * kAttentionKeyGroup, sum[r][g].sum);
    }
  }
}

// Groups that a block of `rows` rows scores at once; the tables of f8_e4m3, or three sums instead
// of one, leave fewer registers.
template <PageForm kForm, DotOrder kOrder>
constexpr int DotGroupsAtOnce(int rows) {
  if (kOrder == DotOrder::kTiles) return rows > 3 ? 1 : 2;
  if (IsF8(kForm)) return rows > 3 ? 2 : 4;
  return rows > 3 ? 4 : rows == 3 ? 6 : 8;
}

// Groups [first, last) for kRows rows, as many groups at once as there are accumulators.
template <int kRows, PageForm kForm, DotOrder kOrder>
inline void DotScoreRows(const AttentionShape& shape, const DotFactor<kOrder>* q,
                         const PageSide<kForm>& side, int first, int last, float* scores) {
  constexpr int kMost = DotGroupsAtOnce<kForm, kOrder>(kRows);
  for (; last - first >= kMost; first += kMost) {
    DotScoreBlock<kRows, kMost, kForm, kOrder>(shape, q, side, first, scores);
  }
  if constexpr (kMost > 4) {
    if (last - first >= 4) {
      DotScoreBlock<kRows, 4, kForm, kOrder>(shape, q, side, first, scores);
      first += 4;
    }
  }
  if constexpr (kMost > 2) {
    if (last - first >= 2) {
      DotScoreBlock<kRows, 2, kForm, kOrder>(shape, q, side, first, scores);
      first += 2;
    }
  }
  if (last > first) DotScoreBlock<kRows, 1, kForm, kOrder>(shape, q, side, first, scores);
}

// The body of DotSoftmaxRow; kWhole: the row sees the whole chunk.
template <bool kWhole>
inline void DotSoftmaxScores(const AttentionShape& shape, const RowKeys& keys, const float* scores,
                             uint16_t* weights, float* max, float* sum) {
  const KeyRange range = keys.range;
  const int first = kWhole ? 0 : range.low / kDotUnit;
  const int last = kWhole ? kDotChunk / kDotUnit : (range.high + kDotUnit - 1) / kDotUnit;
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  const bool plain = shape.soft_cap == 0 && shape.grows_from == 0 && shape.slopes == nullptr &&
                     !shape.biases.AreThere();
  // In units of log2(e) once multiplied by `unit`.
  const auto load = [&](int i) {
    const __m512 v = _mm512_loadu_ps(scores + i * 16);
    if (plain) return v;
    return ScoresOf(shape, _mm512_mul_ps(v, _mm512_set1_ps(shape.query_scale)), keys, i * 16);
  };
  const __m512 unit = _mm512_set1_ps(plain ? shape.query_scale : 1.0f);
  __m512 highest[2] = {none, none};
  __m512 score[kDotChunk / 16];
  for (int i = first; i < last; ++i) {
    const uint32_t seen = kWhole ? 0 : KeyMask(range, i * kDotUnit);
    for (int j = 0; j < 2; ++j) {
      __m512& s = score[2 * i + j];
      s = load(2 * i + j);
      if (!kWhole) s = _mm512_mask_mov_ps(none, seen >> (16 * j) & 0xffff, s);
      highest[j] = _mm512_max_ps(highest[j], s);
    }
  }
  *max = _mm512_reduce_max_ps(_mm512_max_ps(highest[0], highest[1])) * _mm512_cvtss_f32(unit);
  const __m512 shift = _mm512_set1_ps(*max);
  __m512 total = _mm512_setzero_ps();
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  for (int i = first; i < last; ++i) {
    const __m512 low = RoughExp2(_mm512_fmsub_ps(score[2 * i], unit, shift));
    const __m512 high = RoughExp2(_mm512_fmsub_ps(score[2 * i + 1], unit, shift));
    __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if (!kWhole) rounded = _mm512_maskz_mov_epi16(KeyMask(range, i * kDotUnit), rounded);
    _mm512_storeu_si512(weights + i * kDotUnit, rounded);
    total = Dot(total, rounded, ones);
  }
  _mm512_storeu_ps(sum, total);
}

// Converts a row's scores in its range to weights 2^(score - max), rounded to bf16; weights of
// other keys in the same vectors become 0. Sets max, and sum to the sum of the rounded weights.
[[gnu::noinline]] inline void DotSoftmaxRow(const AttentionShape& shape, const RowKeys& keys,
                                            const float* scores, uint16_t* weights, float* max,
                                            float* sum) {
  if (keys.range.low == 0 && keys.range.high == kDotChunk) {
    DotSoftmaxScores<true>(shape, keys, scores, weights, max, sum);
  } else {
    DotSoftmaxScores<false>(shape, keys, scores, weights, max, sum);
  }
}

// 32 kUnits dimensions from `dim` of kRows rows, accumulated over pairs of keys. The 32 dimensions
// of an accumulator are in the order of unpacking: FinishDots() reorders them at the end. kPartial:
// only `head_dim - dim` dimensions exist.
template <int kRows, int kUnits, PageForm kForm, DotOrder kOrder, bool kPartial>
struct DotValueBlock {
  const AttentionShape& shape;
  const PageSide<kForm>& values;
  const DotFactor<kOrder>* weights;  // [kRows, kDotChunk]
  int dim;
  DotSum<kOrder> sum[kRows][2 * kUnits] = {};
  const uintptr_t zero = OpaqueZero();

  __m256i Load(const uint8_t* p) const {
    return LoadF8Value(p, kPartial ? shape.head_dim - dim : kDotUnit);
  }
  __m512i Load(const uint16_t* p) const {
    if (!kPartial) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16((uint32_t{1} << (shape.head_dim - dim)) - 1, p);
  }
  // Prefetches the lines of the page ahead that correspond to the two values at `offset`.
  [[gnu::always_inline]] inline void Prefetch(int group, int offset) const {
    const PageElement<kForm>* now = values.at[group] + offset;
    const PageElement<kForm>* ahead = values.ahead[group] + offset;
    PrefetchAfter(now, ahead, zero);
    PrefetchAfter(now + shape.head_dim, ahead + shape.head_dim, zero);
  }
  // Loads unit u of pair `pair`: keys that are not in `seen` become zeros, and are not read from
  // the cache.
  template <bool kBoth>
  [[gnu::always_inline]] inline void LoadPairs(int pair, KeyRange seen, int u, __m512i* low,
                                               __m512i* high) const {
    const int key = 2 * pair;
    const PageElement<kForm>* page = values.at[key / kAttentionKeyGroup];
    const bool first = kBoth || key >= seen.low, second = kBoth || key + 1 < seen.high;
    if constexpr (kForm == PageForm::kPaired) {
      page += key % kAttentionKeyGroup * shape.padded_dim + 2 * (dim + u * kDotUnit);
      const __m512i mask = _mm512_set1_epi32((first ? 0xffff : 0) | (second ? ~0xffff : 0));
      *low = _mm512_loadu_si512(page);
      *high = _mm512_loadu_si512(page + kDotUnit);
      if (!kBoth) *low = _mm512_and_si512(*low, mask);
      if (!kBoth) *high = _mm512_and_si512(*high, mask);
    } else if constexpr (IsF8(kForm)) {
      const int offset = key % kAttentionKeyGroup * shape.head_dim + dim + u * kDotUnit;
      if (kBoth && u % 2 == 0) Prefetch(key / kAttentionKeyGroup, offset);  // two units to a line
      page += offset;
      PairF8Values(first ? Load(page) : _mm256_setzero_si256(),
                   second ? Load(page + shape.head_dim) : _mm256_setzero_si256(), low, high);
    } else {
      const int offset = key % kAttentionKeyGroup * shape.head_dim + dim + u * kDotUnit;
      if (kBoth) Prefetch(key / kAttentionKeyGroup, offset);
      page += offset;
      const __m512i a = first ? Load(page) : _mm512_setzero_si512();
      const __m512i b = second ? Load(page + shape.head_dim) : _mm512_setzero_si512();
      *low = _mm512_unpacklo_epi16(a, b);
      *high = _mm512_unpackhi_epi16(a, b);
    }
  }
  // Adds pair `pair` for rows [kFirst, kLast), only with the keys in `seen`.
  template <int kFirst, int kLast, bool kBoth>
  [[gnu::always_inline]] inline void Add(int pair, KeyRange seen) {
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u) {
      __m512i low, high;
      LoadPairs<kBoth>(pair, seen, u, &low, &high);
#pragma GCC unroll 8
      for (int r = kFirst; r < kLast; ++r) {
        const DotOperand<kOrder> weight(weights + r * kDotChunk + 2 * pair);
        sum[r][2 * u].Add(weight, DotOperand<kOrder>(low));
        sum[r][2 * u + 1].Add(weight, DotOperand<kOrder>(high));
      }
    }
  }
  // Adds the pairs in [begin, end) that row kRow sees.
  template <int kRow>
  [[gnu::always_inline]] inline void AddAlone(const RowKeys* keys, int begin, int end) {
    for (int p = begin > keys[kRow].range.low / 2 ? begin : keys[kRow].range.low / 2;
         p < end && 2 * p < keys[kRow].range.high; ++p) {
      Add<kRow, kRow + 1, false>(p, keys[kRow].range);
    }
  }
  template <int... kRow>
  [[gnu::always_inline]] inline void EachAlone(std::integer_sequence<int, kRow...>,
                                               const RowKeys* keys, int begin, int end) {
    (AddAlone<kRow>(keys, begin, end), ...);
  }
};

template <int kRows, int kUnits, PageForm kForm, DotOrder kOrder, bool kPartial>
[[gnu::noinline]] void DotValues(const AttentionShape& shape, const PageSide<kForm>& values,
                                 const RowKeys* keys, int dim, const DotFactor<kOrder>* weights,
                                 float* acc) {
  DotValueBlock<kRows, kUnits, kForm, kOrder, kPartial> block{shape, values, weights, dim};
  // Later rows see later keys: all rows see these pairs completely.
  const int begin = (keys[kRows - 1].range.low + 1) / 2, end = keys[0].range.high / 2;
  constexpr auto kEach = std::make_integer_sequence<int, kRows>();
  // Adds pairs [from, to), of which all rows see [begin, end).
  const auto add = [&](int from, int to) {
    int first = begin > from ? begin : from, last = end < to ? end : to;
    if (first >= last) first = last = to;
    block.EachAlone(kEach, keys, from, first);
    for (int p = first; p < last; ++p) block.template Add<0, kRows, true>(p, {});
    block.EachAlone(kEach, keys, last, to);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < 2 * kUnits; ++v) block.sum[r][v].EndBlock();
    }
  };
  if constexpr (kOrder == DotOrder::kPairs) {
    add(0, kDotChunk / 2);
  } else {
    for (int p = 0; p < kDotChunk / 2; p += kPairsPerBlock) add(p, p + kPairsPerBlock);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < 2 * kUnits; ++v) {
      _mm512_storeu_ps(acc + r * shape.padded_dim + dim + v * 16, block.sum[r][v].sum);
    }
  }
}

// Adds all dimensions of kRows rows.
template <int kRows, PageForm kForm, DotOrder kOrder>
inline void DotValueRows(const AttentionShape& shape, const PageSide<kForm>& values,
                         const RowKeys* keys, const DotFactor<kOrder>* weights, float* acc) {
  const int dims = kForm == PageForm::kPaired ? shape.padded_dim : shape.head_dim;
  int dim = 0;
  if constexpr (kOrder == DotOrder::kPairs && (!IsF8(kForm) || kRows <= 4)) {
    for (; dim + 2 * kDotUnit <= dims; dim += 2 * kDotUnit) {
      DotValues<kRows, 2, kForm, kOrder, false>(shape, values, keys, dim, weights, acc);
    }
  }
  for (; dim + kDotUnit <= dims; dim += kDotUnit) {
    DotValues<kRows, 1, kForm, kOrder, false>(shape, values, keys, dim, weights, acc);
  }
  if constexpr (kForm != PageForm::kPaired) {
    if (dim < dims)
      DotValues<kRows, 1, kForm, kOrder, true>(shape, values, keys, dim, weights, acc);
  }
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_BF16_INL_H_
