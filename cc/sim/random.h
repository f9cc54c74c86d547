// File: cc/sim/random.h
// A seeded random number generator in integers only, so that a simulation gives the same report on
// every machine. Streams of one seed are independent: a part of the simulator that draws more does
// not change the draws of the others.
//
//   Random random(seed, kArrivalStream);
//   int64_t gap_ns = random.Exponential(mean_gap_ns);
//
// Thread safety: none; one per thread.
#ifndef PAGEMILL_CC_SIM_RANDOM_H_
#define PAGEMILL_CC_SIM_RANDOM_H_

#include <cstdint>

namespace pagemill::sim {

// The finalizer of splitmix64, by Sebastiano Vigna (public domain): a bijection that spreads bits.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(Mix(seed) ^ Mix(~stream)) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    return Mix(state_);
  }
  // In [0, n), n > 0. The bias is below n / 2^64.
  uint64_t Below(uint64_t n);
  // Exponentially distributed with that mean, which is at most 2^56; never above 22.2 means.
  int64_t Exponential(int64_t mean);
  // Normally distributed with mean 0 and deviation 1, with 32 fraction bits.
  int64_t Normal();

 private:
  uint64_t state_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_RANDOM_H_
