#include "cc/sampling/text_index.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pagemill::sampling {
namespace {

using Tokens = std::vector<int32_t>;

std::vector<size_t> Found(const TextIndex& index, const Tokens& suffix) {
  std::vector<size_t> places = {99};
  index.Find(suffix, &places);
  return places;
}

TEST(TextIndexTest, FindsWhatEveryScanFinds) {
  std::mt19937 rng(1);
  for (int round = 0; round < 20; ++round) {
    TextIndex index;
    Tokens text;
    for (int i = 0; i < 150; ++i) {  // grows several times
      text.push_back(rng() % 12 == 0 ? TextIndex::kBetweenTexts : static_cast<int32_t>(rng() % 4));
      index.Append(text.back());
    }
    for (int i = 0; i < 40; ++i) {
      Tokens suffix;
      for (int t = 0; t < 5; ++t) suffix.push_back(static_cast<int32_t>(rng() % 4));
      std::vector<size_t> expected;
      for (size_t end = text.size() - 1; end >= 3; --end) {
        const bool same = MatchBefore(text, end, suffix, 3) == 3;
        if (same && text[end] != TextIndex::kBetweenTexts) expected.push_back(end);
      }
      EXPECT_EQ(Found(index, suffix), expected);
    }
  }
}

TEST(TextIndexTest, LooksAtTheMostRecentPlacesAlone) {
  TextIndex index;
  for (size_t i = 0; i < 2 * TextIndex::kMostPlaces; ++i) index.Append(7);
  const std::vector<size_t> places = Found(index, {7, 7, 7});
  EXPECT_EQ(places.size(), TextIndex::kMostPlaces);
  EXPECT_EQ(places[0], 2 * TextIndex::kMostPlaces - 1);
}

TEST(TextIndexTest, ShortTextsHaveNoRuns) {
  TextIndex index;
  EXPECT_TRUE(Found(index, {1, 2, 3}).empty());
  for (const int32_t token : {1, 2, 3}) index.Append(token);
  EXPECT_TRUE(Found(index, {1, 2, 3}).empty()) << "nothing follows";
  EXPECT_TRUE(Found(index, {2, 3}).empty());
  index.Append(4);
  EXPECT_EQ(Found(index, {0, 1, 2, 3}), (std::vector<size_t>{3}));
  EXPECT_LE(index.bytes(), 1000u);
}

TEST(MatchBeforeTest, EndsAtTheBeginOfEither) {
  const Tokens text = {5, TextIndex::kBetweenTexts, 1, 2, 3};
  EXPECT_EQ(MatchBefore(text, 5, Tokens{1, 2, 3}, 9), 3u);
  EXPECT_EQ(MatchBefore(text, 5, Tokens{5, TextIndex::kBetweenTexts, 1, 2, 3}, 9), 3u);
  EXPECT_EQ(MatchBefore(text, 5, Tokens{9, 2, 3}, 9), 2u);
  EXPECT_EQ(MatchBefore(text, 5, Tokens{1, 2, 3}, 2), 2u);
  EXPECT_EQ(MatchBefore(text, 4, Tokens{1, 2, 3}, 9), 0u);
}

}  // namespace
}  // namespace pagemill::sampling
