#include "cc/step/token_mask.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagemill::step {
namespace {

TEST(TokenMaskTest, WordsCoverTheVocabulary) {
  EXPECT_EQ(NumMaskWords(0), 0u);
  EXPECT_EQ(NumMaskWords(1), 1u);
  EXPECT_EQ(NumMaskWords(32), 1u);
  EXPECT_EQ(NumMaskWords(33), 2u);
}

TEST(TokenMaskTest, BitsAreCountedFromTheLeastSignificant) {
  std::vector<uint32_t> mask(2);
  AllowToken(mask, 0);
  AllowToken(mask, 33);
  EXPECT_EQ(mask, (std::vector<uint32_t>{1u, 2u}));
  EXPECT_TRUE(AllowsToken(mask, 33));
  EXPECT_FALSE(AllowsToken(mask, 1));
  ForbidToken(mask, 33);
  EXPECT_EQ(mask, (std::vector<uint32_t>{1u, 0u}));
}

}  // namespace
}  // namespace pagemill::step
