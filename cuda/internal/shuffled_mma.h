// File: cuda/internal/shuffled_mma.h
// Mma16x8x16 of cuda/gpu_vendor.h without a matrix instruction: the lanes that hold a sum fetch its
// factors from the others. For vocabularies, after their Shuffle().
#ifndef PAGEMILL_CUDA_INTERNAL_SHUFFLED_MMA_H_
#define PAGEMILL_CUDA_INTERNAL_SHUFFLED_MMA_H_

#include <cstdint>

namespace pagemill::gpu {

PAGEMILL_DEVICE void ShuffledMma16x8x16(float (&c)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  const int row = Lane() / 4 * 4;     // the first of the four lanes that hold a row of A
  const int column = Lane() % 4 * 8;  // the same for a column of B, and the next
  PAGEMILL_UNROLL
  for (int pair = 0; pair < 8; ++pair) {  // of K
    const int half = pair / 4, lane = pair % 4;
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t of_a = Shuffle(AllLanes(), a[i / 2 + half * 2], row + lane);
      const uint32_t of_b = Shuffle(AllLanes(), b[half], column + i % 2 * 4 + lane);
      c[i] += BitsToFloat(of_a << 16) * BitsToFloat(of_b << 16);
      c[i] += BitsToFloat(of_a & 0xffff0000u) * BitsToFloat(of_b & 0xffff0000u);
    }
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_INTERNAL_SHUFFLED_MMA_H_
