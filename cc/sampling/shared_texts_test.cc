#include "cc/sampling/shared_texts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace pagemill::sampling {
namespace {

using Tokens = std::vector<int32_t>;

// Tokens that followed `suffix`.
Tokens Behind(SharedTexts& shared, const Tokens& suffix, std::string_view salt) {
  Tokens found;
  shared.Find(suffix, salt,
              [&](std::span<const int32_t> text, size_t behind) { found.push_back(text[behind]); });
  return found;
}

Tokens Count(int32_t first, size_t size) {
  Tokens text(size);
  std::iota(text.begin(), text.end(), first);
  return text;
}

TEST(SharedTextsTest, ATextIsFoundUnderItsSaltAlone) {
  SharedTexts shared({.max_texts = 10});
  shared.Add(Tokens{1, 2, 3, 4}, "");
  shared.Add(Tokens{1, 2, 3, 5}, "a");
  shared.Add(Tokens{1, 2, 3, 6}, "b");
  shared.Add(Tokens{1, 2, 3, 7}, "a");
  EXPECT_EQ(Behind(shared, {1, 2, 3}, ""), (Tokens{4}));
  EXPECT_EQ(Behind(shared, {1, 2, 3}, "a"), (Tokens{7, 5}));
  EXPECT_EQ(Behind(shared, {1, 2, 3}, "c"), Tokens{});
  EXPECT_EQ(Behind(shared, {2, 3, 4}, ""), Tokens{}) << "its end, and the next text";
}

TEST(SharedTextsTest, ManyTextsOfAnotherSaltHideNone) {
  SharedTexts shared({.max_texts = 1000});
  shared.Add(Tokens{1, 2, 3, 4}, "b");
  for (size_t i = 0; i < 4 * TextIndex::kMostPlaces; ++i) shared.Add(Tokens{1, 2, 3, 5}, "a");
  EXPECT_EQ(Behind(shared, {1, 2, 3}, "b"), (Tokens{4}));
}

TEST(SharedTextsTest, SaltsCountAsTokens) {
  SharedTexts shared({.max_texts = 1000, .max_tokens = 4000});
  for (int32_t i = 0; i < 100; ++i) {
    shared.Add(Tokens{1, 2, 3, i}, std::string(1000, 's') + std::to_string(i));
  }
  EXPECT_LE(shared.num_texts(), 16u);
  shared.Add(Tokens{1, 2, 3, 4}, std::string(100000, 's'));  // no room for the salt alone
  EXPECT_LE(shared.num_texts(), 16u);
}

TEST(SharedTextsTest, OldTextsLeave) {
  SharedTexts shared({.max_texts = 4});
  for (int32_t i = 0; i < 6; ++i) shared.Add(Count(10 * i, 5), "");
  EXPECT_LE(shared.num_texts(), 4u);
  EXPECT_EQ(Behind(shared, Count(50, 3), ""), (Tokens{53}));
  EXPECT_EQ(Behind(shared, Count(30, 3), ""), (Tokens{33}));
  EXPECT_EQ(Behind(shared, Count(0, 3), ""), Tokens{});
}

TEST(SharedTextsTest, TokensAreBoundedToo) {
  SharedTexts shared({.max_texts = 1000, .max_tokens = 100});
  for (int32_t i = 0; i < 50; ++i) shared.Add(Count(1000 * i, 20), "");
  EXPECT_LE(shared.num_texts(), 5u);
  shared.Add(Count(0, 1000), "");
  EXPECT_EQ(Behind(shared, Count(996, 3), ""), (Tokens{999}));
  EXPECT_EQ(Behind(shared, Count(900, 3), ""), Tokens{}) << "its end is kept";
}

TEST(SharedTextsTest, NoneWithoutRoom) {
  SharedTexts shared({.max_texts = 0});
  shared.Add(Count(0, 10), "");
  EXPECT_EQ(shared.num_texts(), 0u);
}

}  // namespace
}  // namespace pagemill::sampling
