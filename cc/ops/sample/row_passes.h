// File: cc/ops/sample/row_passes.h
// The passes of sampling over a whole row of logits, for each instruction set. sample.h is the
// public interface over them. Plain data and functions only: files compiled for wide instructions
// include this header (docs/build.md).
//
// A row is divided into stretches of kStretch logits, the last one shorter.
#ifndef PAGEMILL_CC_OPS_SAMPLE_ROW_PASSES_H_
#define PAGEMILL_CC_OPS_SAMPLE_ROW_PASSES_H_

#include <cstdint>

namespace pagemill::ops {

struct Candidate {
  float logit;
  int32_t token_id;
};

struct MaxEntry {
  int32_t token_id = -1;  // lowest id among equals; -1 if the row holds a NaN or no finite logit
  float logit = 0.0f;
};

inline constexpr int64_t kStretch = 64;

// The weight of a logit x is e^((x - max) * inverse_temperature), 0 for -inf.
struct RowWeights {
  float max;  // of the row
  float inverse_temperature;
};

// `n` is at least 1. A logit's weight has the same bits in every pass.
struct RowPasses {
  const char* name;  // "avx512", "avx2", "portable"
  MaxEntry (*arg_max)(const float* x, int64_t n);
  // out[s] = {the largest of stretch s, s}.
  void (*stretch_maxima)(const float* x, int64_t n, Candidate* out);
  // out[s] = {the weights of stretch s together, s}.
  void (*stretch_weights)(const float* x, int64_t n, const RowWeights& weights, Candidate* out);
  // out[i] = the weight of x[i], n <= kStretch; out has room for kStretch.
  void (*weigh)(const float* x, int64_t n, const RowWeights& weights, float* out);
  // Number of logits larger than `bound`; n <= 2^24.
  int64_t (*count_above)(const float* x, int64_t n, float bound);
  // Stores the logits that are at least `cut` and above -inf, in order; returns their number. out
  // has room for n.
  int64_t (*gather)(const float* x, int64_t n, float cut, Candidate* out);
};

extern const RowPasses kRowPassesPortable;
#if defined(__x86_64__)
extern const RowPasses kRowPassesAvx2;
extern const RowPasses kRowPassesAvx512;
#endif

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SAMPLE_ROW_PASSES_H_
