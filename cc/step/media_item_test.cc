#include "cc/step/media_item.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pagemill::step {
namespace {

// Of 4 rows for each token, in one line.
MediaFeatures Features(int32_t tokens) {
  MediaFeatures features;
  features.rows = 4 * tokens;
  features.channels = 2;
  features.values.resize(static_cast<size_t>(features.rows) * 2);
  features.row_positions.resize(static_cast<size_t>(features.rows) * kMediaGridDims);
  features.token_positions.resize(static_cast<size_t>(tokens) * kMediaGridDims);
  features.next_position = tokens;
  return features;
}

constexpr MediaFormat kFormat = {
    .rows = 40, .channels = 2, .tokens = 10, .any_size = true, .grid = true};

std::string Problem(MediaFeatures features, int32_t tokens, const MediaFormat& format = kFormat) {
  return CheckFeatures({"id", 0, tokens, std::make_shared<MediaFeatures>(std::move(features))},
                       {&format, 1})
      .message();
}

TEST(MediaItemTest, ItemsOfAnySizeHaveRowsAndTokensInProportion) {
  EXPECT_EQ(Problem(Features(1), 1), "");
  EXPECT_EQ(Problem(Features(10), 10), "");
  EXPECT_NE(Problem(Features(11), 11).find("takes at most 40 rows of 2 channels"),
            std::string::npos);
  EXPECT_NE(Problem(Features(0), 0).find("has features of 0 rows"), std::string::npos);
  EXPECT_NE(Problem(Features(3), 4).find("has 4 tokens"), std::string::npos);
  MediaFeatures few = Features(1);
  few.rows = 3;
  few.values.resize(6);
  EXPECT_NE(Problem(few, 0).find("has features of 3 rows"), std::string::npos);
}

TEST(MediaItemTest, RowsThatMakeNoWholeEmbeddingAreTaken) {
  const MediaFormat format = {.rows = 40, .channels = 2, .tokens = 10, .any_size = true};
  const MediaFeatures odd = {.rows = 15, .channels = 2, .values = std::vector<float>(30)};
  EXPECT_EQ(Problem(odd, 3, format), "");
  EXPECT_NE(Problem(odd, 4, format).find("takes the place of 3"), std::string::npos);
}

TEST(MediaItemTest, RowsOfEmbeddingsEndWithATokenOfTheModel) {
  const MediaFormat format = {.rows = 40, .channels = 2, .tokens = 10, .any_size = true};
  MediaFeatures features = {.rows = 24, .channels = 2, .values = std::vector<float>(48)};
  features.row_tokens = 3;  // two rows of 3 of 6 embeddings
  EXPECT_EQ(Problem(features, 8, format), "");
  EXPECT_NE(Problem(features, 6, format).find("takes the place of 8"), std::string::npos);
  EXPECT_EQ(NumEmbeddings(features.rows, format), 6);
  for (const int32_t row_tokens : {4, -3}) {
    features.row_tokens = row_tokens;
    EXPECT_NE(Problem(features, 8, format).find("which 6 do not fill"), std::string::npos);
  }
}

TEST(MediaItemTest, APlacementHasAnEmbeddingForEachToken) {
  MediaFormat format = {.rows = 40, .channels = 2, .tokens = 10, .any_size = true, .placed = true};
  MediaFeatures features = {.rows = 24, .channels = 2, .values = std::vector<float>(48)};
  features.placement = {0, 5, kRowEnd, 2, 2, kRowEnd, 0};  // of 6 embeddings
  EXPECT_EQ(Problem(features, 7, format), "");
  EXPECT_NE(Problem(features, 6, format).find("places for 7 tokens, but it has 6"),
            std::string::npos);
  features.shares.assign(7, 0.5f);
  EXPECT_EQ(Problem(features, 7, format), "");
  features.shares[3] = 1.5f;
  EXPECT_NE(Problem(features, 7, format).find("not from 0 to 1"), std::string::npos);
  features.shares[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(Problem(features, 7, format).find("not from 0 to 1"), std::string::npos);
  features.shares.resize(6);
  EXPECT_NE(Problem(features, 7, format).find("places for 7"), std::string::npos);
  features.placement.assign(10, 1);
  features.shares.assign(10, 0.5f);
  EXPECT_EQ(Problem(features, 5, format), "");
  for (const int32_t tokens : {0, 2, 3}) {
    EXPECT_NE(Problem(features, tokens, format).find("places for 10"), std::string::npos);
  }
  features.placement.clear();
  EXPECT_NE(Problem(features, 6, format).find("places for 0"), std::string::npos);
  features.shares.clear();
  features.placement.resize(11);
  EXPECT_NE(Problem(features, 11, format).find("of at most 10"), std::string::npos);
  for (const int32_t wrong : {6, -2}) {
    features.placement = {0, wrong};
    EXPECT_NE(Problem(features, 2, format).find("other embeddings than its 6"), std::string::npos);
  }
  features.placement = {0, 1};
  format.placed = false;
  EXPECT_NE(Problem(features, 2, format).find("takes none"), std::string::npos);
  format.placed = true;
  features.row_tokens = 1;
  EXPECT_NE(Problem(features, 2, format), "");
}

TEST(MediaItemTest, PositionsLieInTheItem) {
  const auto refused = [](const MediaFeatures& features) {
    EXPECT_NE(Problem(features, 3).find("has no positions in time, row and column for each of its"),
              std::string::npos);
  };
  const int32_t limit = kMaxPositionsPerToken * 3;
  MediaFeatures features = Features(3);
  features.token_positions.back() = limit;
  refused(features);
  features.token_positions.back() = -1;
  refused(features);
  features = Features(3);
  features.row_positions.back() = 12;
  refused(features);
  features = Features(3);
  features.row_positions.pop_back();
  refused(features);
  features = Features(3);
  features.next_position = limit + 1;
  refused(features);
  features.next_position = -1;
  refused(features);
}

TEST(MediaItemTest, FramesOfAVideoShareABeginning) {
  MediaFeatures features = Features(3);
  features.next_position = 0;
  features.token_positions.back() = kMaxPositionsPerToken * 3 - 1;
  EXPECT_EQ(Problem(features, 3), "");
  features.next_position = kMaxPositionsPerToken * 3;
  EXPECT_EQ(Problem(features, 3), "");
}

TEST(MediaItemTest, AnItemHasTheFormatOfItsEncoder) {
  const std::vector<MediaFormat> formats = {
      kFormat, {.rows = 6, .channels = 1, .tokens = 3, .any_size = true}};
  EXPECT_TRUE(HasGrid(formats));
  EXPECT_FALSE(HasGrid(std::span(formats).subspan(1)));
  MediaFeatures features = {.rows = 4, .channels = 1, .values = std::vector<float>(4)};
  const auto problem = [&](int32_t encoder) {
    features.encoder = encoder;
    return CheckFeatures({"id", 0, 2, std::make_shared<MediaFeatures>(features)}, formats)
        .message();
  };
  EXPECT_EQ(problem(1), "");
  EXPECT_NE(problem(0).find("takes at most 40 rows of 2 channels"), std::string::npos);
  for (const int32_t bad : {-1, 2}) {
    EXPECT_EQ(problem(bad),
              "has features for encoder " + std::to_string(bad) + ", but this model has 2");
  }
}

TEST(MediaItemTest, TextsHaveTokensOfTheVocabulary) {
  const MediaFormat format = {
      .rows = 8, .channels = 1, .tokens = 8, .any_size = true, .vocab_size = 50};
  const auto problem = [&format](std::vector<float> ids) {
    const auto rows = static_cast<int32_t>(ids.size());
    return Problem({.rows = rows, .channels = 1, .values = std::move(ids)}, rows, format);
  };
  EXPECT_EQ(problem({0, 49}), "");
  for (const float bad : {-1.0f, 0.5f, 50.0f, std::nanf("")}) {
    EXPECT_EQ(problem({3, bad}), "has token ids outside of the 50 of this model");
  }
}

TEST(MediaItemTest, AModelWithoutAGridTakesNoPositions) {
  MediaFormat format = kFormat;
  format.grid = false;
  EXPECT_EQ(Problem(Features(3), 3, format), "has positions, but this model takes none");
}

}  // namespace
}  // namespace pagemill::step
