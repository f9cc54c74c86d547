#include "cc/runner/media/media_encoder.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/runner/testing/fake_encoder.h"

namespace pagemill::runner {
namespace {

using step::MediaItem;

Status Encode(MediaEncoder* encoder, const std::vector<MediaItem>& items, KeptEmbeddings* kept) {
  std::vector<ItemToEncode> each;
  for (const MediaItem& item : items) each.push_back({.item = &item});
  return encoder->Encode(each, kept);
}

TEST(MediaEncoder, ItemsOfAnySizeShareTheStepsOfTheEncoder) {
  MergingEncoder executor;
  const auto encoder = *MediaEncoder::Create(
      &executor,
      {.format = {.rows = 10, .channels = kChannels, .tokens = 5, .any_size = true, .grid = true},
       .width = kWidth,
       .max_items = 3,
       .max_step_tokens = 12});
  const std::vector<MediaItem> items = {ItemOfSize(1, 0, 5),  ItemOfSize(2, 6, 1),
                                        ItemOfSize(3, 8, 2),  ItemOfSize(4, 11, 1),
                                        ItemOfSize(5, 13, 1), ItemOfSize(6, 15, 1)};
  KeptEmbeddings kept;
  ASSERT_TRUE(Encode(encoder.get(), items, &kept).ok());
  EXPECT_EQ(executor.tokens_of_steps, (std::vector<int32_t>{12, 8, 2}))
      << "at most 12 tokens and 3 items";
  for (const MediaItem& item : items) {
    std::vector<float> expected;
    for (int32_t t = 0; t < item.num_tokens; ++t) {
      const float first = item.features->values[static_cast<size_t>(2 * t * kChannels)];
      expected.insert(expected.end(), {2 * first + 1, static_cast<float>(2 * t)});
    }
    EXPECT_EQ(kept.at(item.content_id), expected) << item.content_id;
  }
}

// Writes down the slots of each step, beside what a MergingEncoder does.
class SlotsEncoder final : public MergingEncoder {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    slots_of_steps.emplace_back(batch.adapter_slots, batch.adapter_slots + batch.num_tokens);
    return MergingEncoder::Enqueue(batch);
  }

  std::vector<std::vector<int32_t>> slots_of_steps;
};

TEST(MediaEncoder, ItemsOfAStepHaveOneAdapter) {
  const std::vector<MediaItem> items = {ItemOfSize(1, 0, 1), ItemOfSize(2, 2, 1),
                                        ItemOfSize(3, 4, 1), ItemOfSize(4, 6, 1)};
  const std::vector<ItemToEncode> each = {
      {&items[0], 2}, {&items[1], 2}, {&items[2]}, {&items[3], 2}};
  for (const bool adapters : {false, true}) {
    SlotsEncoder executor;
    const auto encoder = *MediaEncoder::Create(
        &executor,
        {.format = {.rows = 2, .channels = kChannels, .tokens = 1, .any_size = true, .grid = true},
         .width = kWidth,
         .max_items = 8,
         .adapters = adapters});
    KeptEmbeddings kept;
    ASSERT_TRUE(encoder->Encode(each, &kept).ok());
    EXPECT_EQ(kept.size(), items.size());
    const std::vector<std::vector<int32_t>> none = {{-1, -1, -1, -1, -1, -1, -1, -1}};
    const std::vector<std::vector<int32_t>> own = {{2, 2, 2, 2}, {-1, -1}, {2, 2}};
    EXPECT_EQ(executor.slots_of_steps, adapters ? own : none);
  }
}

// Gives a row the embedding {its first channel, its position}, and ends of rows {-7, width}.
class TilesEncoder final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    ++num_steps;
    embeddings_.clear();
    row_ends_.clear();
    for (int32_t m = 0; m < batch.num_media_rows; ++m) {
      const int32_t token = batch.media_rows[m];
      embeddings_.push_back(batch.inputs[0].Row<const float>(token)[0]);
      embeddings_.push_back(static_cast<float>(batch.positions[token]));
    }
    for (int32_t t = 0; t < batch.num_tokens; ++t) {
      row_ends_.insert(row_ends_.end(), {-7.0f, static_cast<float>(kWidth)});
    }
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    const auto view = [](std::vector<float>* values) {
      return TensorView::Dense(values->data(), DType::kF32,
                               {static_cast<int64_t>(values->size()) / kWidth, kWidth});
    };
    outputs_ = {{{"embeddings", view(&embeddings_)}, {"row_end", view(&row_ends_)}}};
    output->outputs = std::span<const program::OutputView>(outputs_).first(has_row_end ? 2 : 1);
    return OkStatus();
  }

  bool has_row_end = true;
  int32_t num_steps = 0;

 private:
  std::vector<float> embeddings_, row_ends_;
  std::array<program::OutputView, 2> outputs_;
};

constexpr step::MediaFormat kTiles = {
    .rows = 8, .channels = kChannels, .tokens = 8, .any_size = true, .placed = true};

// Three tiles of two rows; row r has the first channel r. The second and third lie side by side.
MediaItem ItemOfTiles(int32_t first_token) {
  auto features = std::make_shared<step::MediaFeatures>();
  features->rows = 6;
  features->channels = kChannels;
  features->values = {0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0};
  features->placement = {0, 1, 2, 4, step::kRowEnd, 3, 5, step::kRowEnd};
  return {"tiles", first_token, 8, features};
}

// Two tokens, of a quarter of the first row and three of the fifth, and an end of a row.
MediaItem ItemOfShares(int32_t first_token) {
  auto features = std::make_shared<step::MediaFeatures>(*ItemOfTiles(0).features);
  features->placement = {0, 4, step::kRowEnd, 0};
  features->shares = {0.25f, 0.75f, 1.0f, 0.0f};
  return {"shares", first_token, 2, features};
}

TEST(MediaEncoder, TilesAreEncodedOneByOneAndPlacedRowByRow) {
  for (const int32_t max_items : {1, 2, 4}) {
    TilesEncoder executor;
    const auto encoder = *MediaEncoder::Create(&executor, {.format = kTiles,
                                                           .class_tokens = 1,
                                                           .width = kWidth,
                                                           .max_items = max_items,
                                                           .tile_rows = 2});
    KeptEmbeddings kept;
    ASSERT_TRUE(Encode(encoder.get(), {ItemOfTiles(3), ItemOfShares(11)}, &kept).ok());
    EXPECT_EQ(kept.at("tiles"), (std::vector<float>{0, 1, 1, 2, 2, 1, 4, 1, -7, kWidth,  //
                                                    3, 2, 5, 2, -7, kWidth}))
        << max_items;
    EXPECT_EQ(kept.at("shares"), (std::vector<float>{3, 1, -7, kWidth})) << max_items;
    EXPECT_EQ(executor.num_steps, (6 + max_items - 1) / max_items);
  }
}

TEST(MediaEncoder, EndsOfRowsNeedAnEmbedding) {
  TilesEncoder executor;
  executor.has_row_end = false;
  const auto encoder =
      *MediaEncoder::Create(&executor, {.format = kTiles, .width = kWidth, .tile_rows = 2});
  KeptEmbeddings kept;
  EXPECT_NE(Encode(encoder.get(), {ItemOfTiles(3)}, &kept).message().find("no embedding for them"),
            std::string::npos);
}

// An encoder of items of any size whose class tokens have features, zeros.
class ClassEncoder final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    const TensorView& features = batch.inputs[0];
    EXPECT_EQ(features.shape[0], batch.num_tokens);
    embeddings_.clear();
    for (int32_t m = 0; m < batch.num_media_rows; ++m) {
      const float* row = features.Row<const float>(batch.media_rows[m]);
      embeddings_.insert(embeddings_.end(), row, row + kWidth);
    }
    for (int32_t r = 0; r < batch.num_requests; ++r) {
      EXPECT_EQ(features.Row<const float>(batch.query_start[r])[0], 0.0f);
    }
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    const auto rows = static_cast<int64_t>(embeddings_.size()) / kWidth;
    output_ = {"embeddings", TensorView::Dense(embeddings_.data(), DType::kF32, {rows, kWidth})};
    output->outputs = {&output_, 1};
    return OkStatus();
  }

 private:
  std::vector<float> embeddings_;
  program::OutputView output_;
};

TEST(MediaEncoder, ClassTokensOfItemsOfAnySizeHaveFeaturesOfZeros) {
  ClassEncoder executor;
  const auto encoder = *MediaEncoder::Create(
      &executor, {.format = {.rows = 6, .channels = kChannels, .tokens = 3, .any_size = true},
                  .class_tokens = 1,
                  .width = kWidth,
                  .max_items = 2});
  std::vector<MediaItem> items = {ItemOfSize(1, 0, 2), ItemOfSize(2, 4, 1)};
  for (MediaItem& item : items) {
    auto features = std::make_shared<step::MediaFeatures>(*item.features);
    features->values.insert(features->values.end(), {99.0f, -1.0f});  // makes no whole embedding
    ++features->rows;
    item.features = features;
  }
  KeptEmbeddings kept;
  ASSERT_TRUE(Encode(encoder.get(), items, &kept).ok());
  EXPECT_EQ(kept.at("m1"), (std::vector<float>{10, -1, 12, -1})) << "every second row of an item";
  EXPECT_EQ(kept.at("m2"), (std::vector<float>{20, -1}));
}

// Gives a token the embedding {its id, its position}.
class TextEncoder final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    EXPECT_TRUE(batch.inputs.empty());
    EXPECT_EQ(batch.num_media_rows, batch.num_tokens);
    embeddings_.clear();
    for (int32_t token = 0; token < batch.num_tokens; ++token) {
      embeddings_.push_back(static_cast<float>(batch.token_ids[token]));
      embeddings_.push_back(static_cast<float>(batch.positions[token]));
    }
    return OkStatus();
  }

  Status Collect(program::ExecutorOutput* output) override {
    const auto rows = static_cast<int64_t>(embeddings_.size()) / kWidth;
    output_ = {"embeddings", TensorView::Dense(embeddings_.data(), DType::kF32, {rows, kWidth})};
    output->outputs = {&output_, 1};
    return OkStatus();
  }

 private:
  std::vector<float> embeddings_;
  program::OutputView output_;
};

TEST(MediaEncoder, TheFeaturesOfTextsAreTheirTokens) {
  TextEncoder executor;
  const auto encoder = *MediaEncoder::Create(
      &executor,
      {.format = {.rows = 4, .channels = 1, .tokens = 4, .any_size = true, .vocab_size = 70000},
       .width = kWidth,
       .max_items = 2});
  const auto text = [](const std::string& id, std::vector<float> ids) {
    auto features = std::make_shared<step::MediaFeatures>();
    features->rows = static_cast<int32_t>(ids.size());
    features->channels = 1;
    features->values = std::move(ids);
    return MediaItem{id, 0, features->rows, features};
  };
  const std::vector<MediaItem> items = {text("a", {5, 69999, 0}), text("b", {65537})};
  KeptEmbeddings kept;
  ASSERT_TRUE(Encode(encoder.get(), items, &kept).ok());
  EXPECT_EQ(kept.at("a"), (std::vector<float>{5, 0, 69999, 1, 0, 2}));
  EXPECT_EQ(kept.at("b"), (std::vector<float>{65537, 0}));
}

TEST(MediaEncoder, OptionsAreChecked) {
  FakeEncoder encoder;
  MediaEncoderOptions options = FakeEncoderOptions();
  options.width = 0;
  EXPECT_EQ(MediaEncoder::Create(&encoder, options).status().message(),
            "media encoder: width must be at least 1, got 0");
  options = FakeEncoderOptions();
  options.max_step_tokens = kRows;
  EXPECT_EQ(MediaEncoder::Create(&encoder, options).status().message(),
            "media encoder: max_step_tokens must be at least 4, got 3");
  options = FakeEncoderOptions();
  options.format.vocab_size = 9;
  EXPECT_EQ(MediaEncoder::Create(&encoder, options).status().message(),
            "media encoder: texts have one channel and no class tokens, got 2 and 1");
  options.format.vocab_size = -9;
  EXPECT_EQ(MediaEncoder::Create(&encoder, options).status().message(),
            "media encoder: vocab_size must be at least 0, got -9");
}

}  // namespace
}  // namespace pagemill::runner
