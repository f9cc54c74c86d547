// File: cc/ops/rotary/rotary_token.h
// The two steps of `rotary` for one token, for each instruction set. Plain data and functions only:
// files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_ROTARY_ROTARY_TOKEN_H_
#define PAGEMILL_CC_OPS_ROTARY_ROTARY_TOKEN_H_

#include <cstdint>

namespace pagemill::ops {

inline constexpr int kMaxRotaryPairs = 256;

// Cosines and sines of one token. Half layout: element i belongs to pair i. Interleaved: elements
// 2 i and 2 i + 1 belong to pair i, and sin[2 i] is negated, so that a rotation is
// x cos + swap_pairs(x) sin.
struct RotaryAngles {
  float cos[2 * kMaxRotaryPairs];
  float sin[2 * kMaxRotaryPairs];
};

struct RotaryFrequencies {
  const float* inv_freq = nullptr;  // [dims, pairs], rows dim_stride apart
  int32_t pairs = 0;
  int32_t dims = 1;  // of a position
  int64_t dim_stride = 0;
  bool interleaved = false;
  float mscale = 1;
  int32_t begin = 0;   // the first element that rotates
  int32_t offset = 0;  // added to positions
};

// `heads` consecutive heads of one token.
struct RotaryHeads {
  const float* source = nullptr;  // [heads, head_dim]
  float* target = nullptr;        // the same; may be source
  int64_t heads = 0;
  int64_t head_dim = 0;
};

struct RotaryKernel {
  // `position` has frequencies.dims elements.
  void (*angles)(const RotaryFrequencies& frequencies, const int32_t* position,
                 RotaryAngles* angles);
  void (*rotate)(const RotaryFrequencies& frequencies, const RotaryAngles& angles,
                 const RotaryHeads& heads);
};

extern const RotaryKernel kRotaryPortable;
extern const RotaryKernel kRotaryAvx2;
extern const RotaryKernel kRotaryAvx512;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROTARY_ROTARY_TOKEN_H_
