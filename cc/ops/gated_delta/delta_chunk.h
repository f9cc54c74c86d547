// File: cc/ops/gated_delta/delta_chunk.h
// A chunk of tokens of one head of `gated_delta`, for each instruction set. Plain data and
// functions only: files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_GATED_DELTA_DELTA_CHUNK_H_
#define PAGEMILL_CC_OPS_GATED_DELTA_DELTA_CHUNK_H_

#include <cstdint>

namespace pagemill::ops {

inline constexpr int64_t kMaxDeltaKeys = 256;

// Tokens of a chunk: as many as amortize the copy of the state, while their rows of q, k and decays
// stay in the second-level cache. `keys` is at most kMaxDeltaKeys.
inline constexpr int64_t kMaxDeltaTokens = 64;
inline constexpr int64_t kDeltaRowFloats = 4096;
constexpr int64_t DeltaChunkTokens(int64_t keys) {
  return keys * kMaxDeltaTokens <= kDeltaRowFloats ? kMaxDeltaTokens : kDeltaRowFloats / keys;
}

struct DeltaChunk {
  const float* source = nullptr;     // [keys, values]; null: zeros
  float* target = nullptr;           // [keys, values]; may be source
  const float* q = nullptr;          // [tokens, keys], normalized
  const float* k = nullptr;          // [tokens, keys], normalized
  const float* v = nullptr;          // [tokens, values], rows of `row_stride` floats
  float* y = nullptr;                // [tokens, values], rows of `y_stride` floats
  const float* decay = nullptr;      // [tokens, keys]: factors of the state's rows before the token
  const float* decayed_k = nullptr;  // [tokens, keys]: k * decay
  const float* share = nullptr;      // [tokens]: share_scale * sigmoid(b)
  int64_t tokens = 0;                // at least 1
  int64_t keys = 0;                  // at most kMaxDeltaKeys
  int64_t values = 0;
  int64_t row_stride = 0;
  int64_t y_stride = 0;
};

struct DeltaFunctions {
  void (*run)(const DeltaChunk& chunk);
  // decay = exp(rate * softplus(a + bias)), each [size].
  void (*make_decays)(const float* a, const float* bias, float rate, int64_t size, float* decay);
  float (*sum_squares)(const float* x, int64_t size);
};

extern const DeltaFunctions kDeltaPortable;
extern const DeltaFunctions kDeltaAvx2;
extern const DeltaFunctions kDeltaAvx512;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GATED_DELTA_DELTA_CHUNK_H_
