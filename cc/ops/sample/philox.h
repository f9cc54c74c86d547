// File: cc/ops/sample/philox.h
// Philox4x32-10: a counter-based generator, so that a random number is a pure function of (seed,
// counter). Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#ifndef PAGEMILL_CC_OPS_SAMPLE_PHILOX_H_
#define PAGEMILL_CC_OPS_SAMPLE_PHILOX_H_

#include <array>
#include <cstdint>

namespace pagemill::ops {

constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMul0} * counter[0];
    const uint64_t p1 = uint64_t{kMul1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits. Numbers of different streams are independent.
constexpr double PhiloxUniform(uint64_t seed, uint64_t counter, uint32_t stream = 0) {
  const auto r =
      Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), stream, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SAMPLE_PHILOX_H_
