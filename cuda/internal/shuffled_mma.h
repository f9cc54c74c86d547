// File: cuda/internal/shuffled_mma.h
// Mma16x8x16, Mma16x8x32 and LoadTransposed of cuda/gpu_vendor.h without instructions for matrices:
// the lanes that hold a sum fetch its factors from the others. For vocabularies, after their
// Shuffle().
#ifndef PAGEMILL_CUDA_INTERNAL_SHUFFLED_MMA_H_
#define PAGEMILL_CUDA_INTERNAL_SHUFFLED_MMA_H_

#include <cstdint>

namespace pagemill::gpu {

// The products of what a register of A and one of B hold, in the order of K.
PAGEMILL_DEVICE void AddRegister(uint32_t a, uint32_t b, float& sum) {
  sum += BitsToFloat(a << 16) * BitsToFloat(b << 16);
  sum += BitsToFloat(a & 0xffff0000u) * BitsToFloat(b & 0xffff0000u);
}
PAGEMILL_DEVICE void AddRegister(uint32_t a, uint32_t b, int32_t& sum) {
  PAGEMILL_UNROLL
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
}

// Sum: float of bf16, int32_t of int8.
template <typename Sum>
PAGEMILL_DEVICE void ShuffledMma(Sum (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const int row = Lane() / 4 * 4;     // the first of the four lanes that hold a row of A
  const int column = Lane() % 4 * 8;  // the same for a column of B, and the next
  PAGEMILL_UNROLL
  for (int part = 0; part < 8; ++part) {  // of K, a register each
    const int half = part / 4, lane = part % 4;
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t of_a = Shuffle(AllLanes(), a[i / 2 + half * 2], row + lane);
      const uint32_t of_b = Shuffle(AllLanes(), b[half], column + i % 2 * 4 + lane);
      AddRegister(of_a, of_b, c[i]);
    }
  }
}

PAGEMILL_DEVICE void ShuffledLoadTransposed(uint32_t (&r)[4], const void* row) {
  const int column = Lane() / 4, in_group = Lane() % 4;
  const auto own = reinterpret_cast<uint64_t>(row);
  PAGEMILL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int lane = 8 * i + 2 * in_group;  // that passes the first of two rows
    const auto low = reinterpret_cast<const uint16_t*>(Shuffle(AllLanes(), own, lane));
    const auto high = reinterpret_cast<const uint16_t*>(Shuffle(AllLanes(), own, lane + 1));
    r[i] = low[column] | static_cast<uint32_t>(high[column]) << 16;
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_INTERNAL_SHUFFLED_MMA_H_
