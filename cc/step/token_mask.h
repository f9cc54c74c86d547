// File: cc/step/token_mask.h
// Which tokens of the vocabulary a row of logits may give: one bit a token.
//
//   std::vector<uint32_t> mask(NumMaskWords(vocab_size));  // allows nothing
//   AllowToken(mask, 17);
//   AllowsToken(mask, 17)  // true
//
// Bit t % 32 (counted from the least significant) of word t / 32 belongs to token t; set = allowed.
// If the vocabulary is not a multiple of 32, the last word has bits beyond it: they mean nothing,
// a writer of masks may leave anything in them, and no reader looks at them.
#ifndef PAGEMILL_CC_STEP_TOKEN_MASK_H_
#define PAGEMILL_CC_STEP_TOKEN_MASK_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace pagemill::step {

inline constexpr int32_t kTokensPerMaskWord = 32;

// Words of the mask of one row.
constexpr size_t NumMaskWords(int32_t vocab_size) {
  return (static_cast<size_t>(vocab_size) + kTokensPerMaskWord - 1) / kTokensPerMaskWord;
}

inline bool AllowsToken(std::span<const uint32_t> mask, int32_t token_id) {
  return (mask[token_id / kTokensPerMaskWord] >> (token_id % kTokensPerMaskWord) & 1u) != 0;
}

inline void AllowToken(std::span<uint32_t> mask, int32_t token_id) {
  mask[token_id / kTokensPerMaskWord] |= uint32_t{1} << (token_id % kTokensPerMaskWord);
}

inline void ForbidToken(std::span<uint32_t> mask, int32_t token_id) {
  mask[token_id / kTokensPerMaskWord] &= ~(uint32_t{1} << (token_id % kTokensPerMaskWord));
}

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_TOKEN_MASK_H_
