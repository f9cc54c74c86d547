#include "cc/ops/quantized/internal/integer_block.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/nibble_tables.h"

namespace pagemill::ops::internal {
namespace {

// 32 codes of 4 bits in 16 bytes: the low nibbles first.
void LoadCodes(const uint8_t* bytes, const NibbleTable& values, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = values[bytes[i] & 15];
    q[i + 16] = values[bytes[i] >> 4];
  }
}

// 128 integers of 2 bits in 32 bytes: element i is in bits 2 (i / 32) of byte i % 32.
void LoadBitPairs(const uint8_t* bytes, int8_t* q) {
  for (int i = 0; i < 128; ++i) q[i] = static_cast<int8_t>(bytes[i % 32] >> (2 * (i / 32)) & 3);
}

// Digit `place` of a byte of tq1_0, from its first, as -1, 0 or 1: a byte b stands for b / 256 in
// base 3.
int8_t Ternary(uint8_t byte, int place) {
  constexpr std::array<int, 5> kPowers = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPowers[static_cast<size_t>(place)]);
  return static_cast<int8_t>((shifted * 3 >> 8) - 1);
}

}  // namespace

// f16 d, f16 m, 4 bytes of fifth bits, 16 bytes of nibbles.
void LoadQ5_1(const uint8_t* block, IntegerBlock* out) {
  out->dmin = -LoadF16(block + 2);
  out->scales.fill(1);
  out->minima.fill(1);
  const uint32_t high = LoadLe32(block + 4);
  for (int i = 0; i < 32; ++i) {
    const int low = block[8 + i % 16] >> (i < 16 ? 0 : 4) & 15;
    out->q[static_cast<size_t>(i)] = static_cast<int8_t>(low | (high >> i & 1) << 4);
  }
}

// 16 bytes of scales (low nibbles) and minima, 64 bytes of bit pairs, f16 d, f16 dmin.
void LoadQ2K(const uint8_t* block, IntegerBlock* out) {
  out->dmin = LoadF16(block + 82);
  for (size_t s = 0; s < out->scales.size(); ++s) {
    out->scales[s] = static_cast<int8_t>(block[s] & 15);
    out->minima[s] = static_cast<int8_t>(block[s] >> 4);
  }
  for (int half = 0; half < 2; ++half) {
    LoadBitPairs(block + 16 + 32 * half, out->q.data() + 128 * half);
  }
}

// 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales, f16 d. A third bit of 0
// subtracts 4.
void LoadQ3K(const uint8_t* block, IntegerBlock* out) {
  for (int s = 0; s < kBlockElements / 16; ++s) {
    out->scales[static_cast<size_t>(s)] = Q3KScale(block, s);
  }
  for (int half = 0; half < 2; ++half) {
    LoadBitPairs(block + 32 + 32 * half, out->q.data() + 128 * half);
  }
  for (int i = 0; i < kBlockElements; ++i) {
    const int third = block[i % 32] >> (i / 32) & 1;
    int8_t& q = out->q[static_cast<size_t>(i)];
    q = static_cast<int8_t>(q + 4 * third - 4);
  }
}

// f16 d, 16 bytes of codes.
void LoadIq4Nl(const uint8_t* block, IntegerBlock* out) {
  out->scales.fill(1);
  LoadCodes(block + 2, kNonlinearNibbles, out->q.data());
}

// A byte of d, 16 bytes of codes.
void LoadMxfp4(const uint8_t* block, IntegerBlock* out) {
  out->scales.fill(1);
  LoadCodes(block + 1, kE2m1Doubled, out->q.data());
}

// f16 d, 2 bytes of the high pairs and 4 bytes of the low nibbles of 8 scales, 128 bytes of codes.
void LoadIq4Xs(const uint8_t* block, IntegerBlock* out) {
  const int high = LoadLe16(block + 2);
  for (int s = 0; s < 8; ++s) {
    const int low = block[4 + s / 2] >> (4 * (s % 2)) & 15;
    const int scale = (low | (high >> (2 * s) & 3) << 4) - 32;
    std::fill_n(out->scales.begin() + 2 * s, 2, static_cast<int8_t>(scale));
    LoadCodes(block + 8 + 16 * s, kNonlinearNibbles, out->q.data() + 32 * s);
  }
}

// 48 bytes of 5 digits, 4 bytes of 4 digits, f16 d. A group of 32, 16 or 4 bytes has the first
// digits of all its bytes first.
void LoadTq1(const uint8_t* block, IntegerBlock* out) {
  out->scales.fill(1);
  for (int i = 0; i < 160; ++i) out->q[static_cast<size_t>(i)] = Ternary(block[i % 32], i / 32);
  for (int i = 0; i < 80; ++i) {
    out->q[static_cast<size_t>(160 + i)] = Ternary(block[32 + i % 16], i / 16);
  }
  for (int i = 0; i < 16; ++i) {
    out->q[static_cast<size_t>(240 + i)] = Ternary(block[48 + i % 4], i / 4);
  }
}

// 64 bytes of bit pairs, of which 1 is subtracted, f16 d.
void LoadTq2(const uint8_t* block, IntegerBlock* out) {
  out->scales.fill(1);
  for (int half = 0; half < 2; ++half) {
    LoadBitPairs(block + 32 * half, out->q.data() + 128 * half);
  }
  for (int8_t& q : out->q) --q;
}

}  // namespace pagemill::ops::internal
