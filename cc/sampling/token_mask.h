// File: cc/sampling/token_mask.h
// Which tokens of the vocabulary a row of logits may give: one bit a token.
//
//   std::vector<uint32_t> mask(NumMaskWords(vocab_size));  // allows nothing
//   AllowToken(mask, 17);
//   CopyAllowed(logits, mask, masked_logits);
//
// Bit t % 32 (counted from the least significant) of word t / 32 belongs to token t; set = allowed.
// If the vocabulary is not a multiple of 32, the last word has bits beyond it: they mean nothing,
// a writer of masks may leave anything in them, and no function here reads them.
#ifndef PAGEMILL_CC_SAMPLING_TOKEN_MASK_H_
#define PAGEMILL_CC_SAMPLING_TOKEN_MASK_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace pagemill::sampling {

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

// out = logits, with -inf for tokens that the mask does not allow. An empty mask allows all.
// `out` has the size of `logits`, and the mask NumMaskWords of that.
void CopyAllowed(std::span<const float> logits, std::span<const uint32_t> mask,
                 std::span<float> out);

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_TOKEN_MASK_H_
