#include "cc/sampling/copy_allowed.h"

#include <algorithm>
#include <limits>

#include "cc/step/token_mask.h"

namespace pagemill::sampling {

void CopyAllowed(std::span<const float> logits, std::span<const uint32_t> mask,
                 std::span<float> out) {
  constexpr float kExcluded = -std::numeric_limits<float>::infinity();
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  if (mask.empty()) {
    std::copy(logits.begin(), logits.end(), out.begin());
    return;
  }
  for (size_t begin = 0, w = 0; begin < logits.size(); begin += step::kTokensPerMaskWord, ++w) {
    const size_t n = std::min<size_t>(step::kTokensPerMaskWord, logits.size() - begin);
    const float* from = logits.data() + begin;
    float* to = out.data() + begin;
    const uint32_t bits = mask[w];
    // Grammars allow few tokens or nearly all, so most words are all zeros or all ones.
    if (bits == 0) {
      std::fill_n(to, n, kExcluded);
    } else if (bits == kAll) {
      std::copy_n(from, n, to);
    } else {
      for (size_t i = 0; i < n; ++i) to[i] = (bits >> i & 1u) != 0 ? from[i] : kExcluded;
    }
  }
}

}  // namespace pagemill::sampling
