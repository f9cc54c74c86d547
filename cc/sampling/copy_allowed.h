// File: cc/sampling/copy_allowed.h
// Applies a token mask (cc/step/token_mask.h) to a row of logits.
#ifndef PAGEMILL_CC_SAMPLING_COPY_ALLOWED_H_
#define PAGEMILL_CC_SAMPLING_COPY_ALLOWED_H_

#include <cstdint>
#include <span>

namespace pagemill::sampling {

// out = logits, with -inf for tokens that the mask excludes. An empty mask allows all. `out` has
// the size of `logits`, and the mask has step::NumMaskWords(size) words.
void CopyAllowed(std::span<const float> logits, std::span<const uint32_t> mask,
                 std::span<float> out);

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_COPY_ALLOWED_H_
