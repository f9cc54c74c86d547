// File: cc/ops/paged_attention/attention_f8_inl.h
// Keys and values of f8_e4m3 as pairs of bf16, which hold every one of them exactly: the two bytes
// of a bf16 number are looked up in tables of 128 by AVX512-VBMI's permutation of bytes.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_F8_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_F8_INL_H_

#include "cc/ops/paged_attention/attention_split_inl.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

// Bytes to permute registers with.
template <int kSize>
struct ByteTable {
  alignas(64) uint8_t bytes[kSize] = {};
  __m512i Part(int i) const { return _mm512_load_si512(bytes + 64 * i); }
};

// Byte `byte` (0: the low one) of the bf16 number of each code without its sign.
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

// The intrinsics' instructions, of a set that the file's other kernels do without: capabilities.h's
// avx512_vbmi says whether the CPU has them.
inline __m512i PermuteBytes(__m512i order, __m512i bytes) {
  __m512i result;
  asm("vpermb %2, %1, %0" : "=v"(result) : "v"(order), "v"(bytes));
  return result;
}
inline __m512i LookUp(__m512i codes, const ByteTable<128>& table) {
  asm("vpermi2b %2, %1, %0" : "+v"(codes) : "v"(table.Part(0)), "v"(table.Part(1)));
  return codes;
}

// The numbers of the lower and of the upper 8 codes of each quarter.
inline void WidenF8(__m512i codes, __m512i* lower, __m512i* upper) {
  const __m512i low = LookUp(codes, kLowBytes);
  // magnitude | (code & sign)
  const __m512i high =
      _mm512_ternarylogic_epi32(LookUp(codes, kHighBytes), codes, _mm512_set1_epi8(-128), 0xf8);
  *lower = _mm512_unpacklo_epi8(low, high);
  *upper = _mm512_unpackhi_epi8(low, high);
}

// Four dimensions of 16 keys, of which `dims` exist (others are 0), as pairs: the first two and the
// last two. kAdjacent: they lie side by side, and all exist.
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

// Two values of LoadF8Value as pairs, in the order that unpacking their bf16 numbers would leave.
inline void PairF8Values(__m256i a, __m256i b, __m512i* lower, __m512i* upper) {
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  WidenF8(PermuteBytes(kValueOrder.Part(0), both), lower, upper);
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_F8_INL_H_
