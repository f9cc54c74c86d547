#include "cc/sampling/copy_allowed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cc/step/token_mask.h"

namespace pagemill::sampling {
namespace {

TEST(CopyAllowedTest, CopiesWhatIsAllowed) {
  std::mt19937 rng(1);
  for (size_t size : {1, 31, 32, 33, 64, 211}) {
    std::vector<float> logits(size), out(size, NAN);
    for (size_t i = 0; i < size; ++i) logits[i] = static_cast<float>(i);
    std::vector<uint32_t> mask(step::NumMaskWords(static_cast<int32_t>(size)));
    // Whole words of both kinds, and mixed ones; bits beyond the vocabulary are random.
    for (uint32_t& word : mask) word = rng() % 3 == 0 ? 0u : rng() % 2 == 0 ? 0xFFFFFFFFu : rng();
    CopyAllowed(logits, mask, out);
    for (size_t i = 0; i < size; ++i) {
      const bool allowed = step::AllowsToken(mask, static_cast<int32_t>(i));
      EXPECT_EQ(out[i], allowed ? logits[i] : -INFINITY) << size << " " << i;
    }
    CopyAllowed(logits, {}, out);
    EXPECT_EQ(out, logits) << "an empty mask allows all";
  }
}

}  // namespace
}  // namespace pagemill::sampling
