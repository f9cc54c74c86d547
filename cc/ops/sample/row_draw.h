// File: cc/ops/sample/row_draw.h
// Parameters of drawing a token from one row of logits, as 32-bit words, which are copied to
// devices and sent to other ranks unchanged.
//
//   RowDraw draw = {.temperature = 0.7f, .top_p = 0.9f, .position = 12};
//   draw.SetSeed(request.seed);
//   int32_t token_id = DrawRow(passes, logits, ArgMax(passes, logits), draw, storage);
//
// The order of operations is docs/sampling.md, 6 to 11.
#ifndef PAGEMILL_CC_OPS_SAMPLE_ROW_DRAW_H_
#define PAGEMILL_CC_OPS_SAMPLE_ROW_DRAW_H_

#include <cstdint>
#include <span>

#include "cc/ops/sample/philox.h"
#include "cc/ops/sample/sample.h"

namespace pagemill::ops {

struct RowDraw {
  float temperature = 0.0f;  // 0: the token with the largest logit; other fields are ignored
  float min_p = 0.0f;        // 0 = off
  float top_p = 1.0f;
  int32_t top_k = 0;  // 0 = off
  uint32_t seed_low = 0, seed_high = 0;
  int32_t position =
      0;              // number of tokens that the request has sampled: the random number's counter
  int32_t mask = -1;  // index of the row's mask; -1: all tokens are allowed

  void SetSeed(uint64_t seed) {
    seed_low = static_cast<uint32_t>(seed);
    seed_high = static_cast<uint32_t>(seed >> 32);
  }
  uint64_t seed() const { return uint64_t{seed_high} << 32 | seed_low; }
};
inline constexpr int64_t kRowDrawWords = sizeof(RowDraw) / sizeof(int32_t);
static_assert(sizeof(RowDraw) == 8 * sizeof(int32_t));

// Parameters with the row's random number.
inline DrawParams DrawParamsOf(const RowDraw& draw) {
  return {.temperature = draw.temperature,
          .min_weight = draw.min_p,
          .top_k = draw.top_k,
          .top_p = draw.top_p,
          .uniform = PhiloxUniform(draw.seed(), static_cast<uint64_t>(draw.position))};
}

// `max` is ArgMax(logits); storage.size() >= logits.size().
inline int32_t DrawRow(const RowPasses& passes, std::span<const float> logits, const MaxEntry& max,
                       const RowDraw& draw, std::span<Candidate> storage) {
  if (draw.temperature <= 0.0f) return max.token_id;
  return DrawToken(passes, logits, max, DrawParamsOf(draw), storage);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SAMPLE_ROW_DRAW_H_
