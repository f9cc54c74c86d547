#include "cc/step/token_sequence.h"

#include <vector>

#include "gtest/gtest.h"

namespace pagemill::step {
namespace {

TEST(TokenSequence, CopiesEveryRangeAcrossTheBorder) {
  const std::vector<int32_t> prompt = {10, 11, 12};
  for (size_t num_output : {0, 1, 4}) {
    std::vector<int32_t> output, all = prompt;
    for (size_t i = 0; i < num_output; ++i) output.push_back(20 + static_cast<int32_t>(i));
    all.insert(all.end(), output.begin(), output.end());
    const TokenSequence tokens(prompt, output);
    ASSERT_EQ(tokens.size(), static_cast<int32_t>(all.size()));
    EXPECT_EQ(tokens.prompt_size(), 3);
    for (int32_t begin = 0; begin <= tokens.size(); ++begin) {
      if (begin < tokens.size()) {
        EXPECT_EQ(tokens[begin], all[begin]);
      }
      for (int32_t end = begin; end <= tokens.size(); ++end) {
        std::vector<int32_t> part = {-1, -1};
        tokens.CopyTo(begin, end, &part);
        EXPECT_EQ(part, std::vector<int32_t>(all.begin() + begin, all.begin() + end));
      }
    }
  }
}

}  // namespace
}  // namespace pagemill::step
