#include "cc/runner/media_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/tensor/to_float.h"

namespace pagemill::runner {
namespace {

using step::MediaItem;
using step::Request;
using step::RequestIndex;
using step::ScheduledRequest;
using step::StepPlan;

constexpr int32_t kRows = 3, kChannels = 2, kClassTokens = 1, kWidth = 2;

// Gives a patch the embedding {2 * its first channel, its position}.
class FakeEncoder final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    ++num_steps;
    if (!next_status.ok()) return std::exchange(next_status, OkStatus());
    EXPECT_EQ(batch.num_tokens, batch.num_requests * (kRows + kClassTokens));
    EXPECT_EQ(batch.query_start[batch.num_requests], batch.num_tokens);
    EXPECT_EQ(batch.inputs.size(), 1u);
    const TensorView& features = batch.inputs[0];
    EXPECT_EQ(features.shape[0], batch.num_media_rows);
    std::vector<float> values(static_cast<size_t>(features.Elements()));
    ToFloat(features, values.data());
    embeddings_.clear();
    for (int32_t m = 0; m < batch.num_media_rows; ++m) {
      embeddings_.push_back(2 * values[static_cast<size_t>(m * kChannels)]);
      embeddings_.push_back(static_cast<float>(batch.positions[batch.media_rows[m]]));
    }
    rows_ = batch.num_media_rows - missing_rows;
    return OkStatus();
  }

  Status Collect(program::ExecutorOutput* output) override {
    output_ = {"embeddings", TensorView::Dense(embeddings_.data(), DType::kF32, {rows_, kWidth})};
    output->outputs = {&output_, 1};
    return OkStatus();
  }

  int num_steps = 0;
  int missing_rows = 0;
  Status next_status;

 private:
  std::vector<float> embeddings_;
  int64_t rows_ = 0;
  program::OutputView output_;
};

MediaEncoderOptions SmallOptions() {
  return {.format = {.rows = kRows, .channels = kChannels, .tokens = kRows},
          .class_tokens = kClassTokens,
          .width = kWidth,
          .max_items = 2};
}

// Item number `content` and row r have the features {10 content + r, -1}.
MediaItem Item(int32_t content, int32_t first_token) {
  auto features = std::make_shared<step::MediaFeatures>();
  features->rows = kRows;
  features->channels = kChannels;
  for (int32_t r = 0; r < kRows; ++r) {
    features->values.push_back(static_cast<float>(10 * content + r));
    features->values.push_back(-1);
  }
  return {"m" + std::to_string(content), first_token, kRows, features};
}

std::vector<float> EmbeddingOf(int32_t content, int32_t row) {
  return {static_cast<float>(2 * (10 * content + row)), static_cast<float>(kClassTokens + row)};
}

engine::RunnerLimits SmallLimits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 64;
  limits.max_num_seqs = 4;
  limits.max_num_logits_rows = 64;
  limits.kv_groups.clear();
  return limits;
}

std::shared_ptr<const Request> RequestWith(std::vector<MediaItem> media, size_t tokens = 20) {
  auto request = std::make_shared<Request>();
  request->prompt_token_ids = std::vector<int32_t>(tokens, 1);
  request->media = std::move(media);
  return request;
}

ScheduledRequest Entry(int32_t slot, std::shared_ptr<const Request> start, int32_t computed,
                       int32_t tokens, std::vector<int32_t> to_encode = {}) {
  ScheduledRequest entry;
  entry.index = RequestIndex(slot);
  entry.start = std::move(start);
  entry.num_computed_tokens = computed;
  entry.token_ids.assign(static_cast<size_t>(tokens), 1);
  entry.media_to_encode = std::move(to_encode);
  return entry;
}

struct MediaRow {
  int32_t token;
  std::vector<float> embedding;
  bool operator==(const MediaRow&) const = default;
};

// A media encoder and what the model's program would see of a plan.
class Fixture {
 public:
  explicit Fixture(const MediaEncoderOptions& options = SmallOptions()) : batch_(SmallLimits()) {
    media = *MediaEncoder::Create(&encoder, options);
  }

  Status Apply(const StepPlan& plan) {
    PAGEMILL_RETURN_IF_ERROR(batch_.Apply(plan));
    return media->Apply(plan, batch_);
  }

  ops::StepBatch Step() const {
    ops::StepBatch batch = batch_.view();
    media->AddTo(&batch);
    return batch;
  }

  std::vector<MediaRow> Rows() const {
    const ops::StepBatch batch = Step();
    const TensorView& input = batch.inputs[0];
    EXPECT_EQ(input.shape[0], batch.num_media_rows);
    std::vector<float> values(static_cast<size_t>(input.Elements()));
    ToFloat(input, values.data());
    std::vector<MediaRow> rows;
    for (int32_t m = 0; m < batch.num_media_rows; ++m) {
      const float* row = &values[static_cast<size_t>(m * kWidth)];
      rows.push_back({batch.media_rows[m], {row, row + kWidth}});
    }
    return rows;
  }

  FakeEncoder encoder;
  std::unique_ptr<MediaEncoder> media;

 private:
  BatchState batch_;
};

TEST(MediaEncoder, GathersTheEmbeddingsOfTheStepsTokens) {
  Fixture f;
  const auto request = RequestWith({Item(1, 2), Item(2, 5)});
  StepPlan plan;
  plan.scheduled = {Entry(0, request, 0, 6, {0, 1}), Entry(1, RequestWith({}), 0, 2),
                    Entry(2, RequestWith({Item(1, 0)}), 0, 1)};
  ASSERT_TRUE(f.Apply(plan).ok());
  const std::vector<MediaRow> expected = {{2, EmbeddingOf(1, 0)},
                                          {3, EmbeddingOf(1, 1)},
                                          {4, EmbeddingOf(1, 2)},
                                          {5, EmbeddingOf(2, 0)},
                                          {8, EmbeddingOf(1, 0)}};
  EXPECT_TRUE(f.Rows() == expected);
  EXPECT_EQ(f.media->num_encoded_items(), 2);
  EXPECT_EQ(f.encoder.num_steps, 1) << "items are encoded together";

  StepPlan rest;
  rest.scheduled = {Entry(0, nullptr, 6, 14)};
  ASSERT_TRUE(f.Apply(rest).ok());
  const std::vector<MediaRow> others = {{0, EmbeddingOf(2, 1)}, {1, EmbeddingOf(2, 2)}};
  EXPECT_TRUE(f.Rows() == others);
  EXPECT_EQ(f.encoder.num_steps, 1);
}

TEST(MediaEncoder, NarrowTypesAreRoundedOnTheWay) {
  MediaEncoderOptions options = SmallOptions();
  options.features_type = options.embeddings_type = DType::kBF16;
  Fixture f(options);
  StepPlan plan;
  plan.scheduled = {Entry(0, RequestWith({Item(3, 0)}), 0, 20, {0})};
  ASSERT_TRUE(f.Apply(plan).ok());
  EXPECT_TRUE(f.Rows()[2] == (MediaRow{2, EmbeddingOf(3, 2)}));
}

TEST(MediaEncoder, WhatIsReleasedIsGoneAndMayBeMadeAgain) {
  Fixture f;
  const auto request = RequestWith({Item(1, 0)});
  StepPlan plan;
  plan.scheduled = {Entry(0, request, 0, 1, {0})};
  ASSERT_TRUE(f.Apply(plan).ok());
  plan.released_media = {"m1"};  // and made again
  ASSERT_TRUE(f.Apply(plan).ok());
  EXPECT_EQ(f.media->num_encoded_items(), 2);
  StepPlan released;
  released.released_media = {"m1"};
  ASSERT_TRUE(f.Apply(released).ok());
  StepPlan next;
  next.scheduled = {Entry(0, nullptr, 1, 1)};
  EXPECT_EQ(f.Apply(next).message(),
            "step plan: media item 'm1' is needed and has not been encoded");
}

TEST(MediaEncoder, AFailedStepKeepsNothing) {
  Fixture f;
  StepPlan plan;
  plan.scheduled = {Entry(0, RequestWith({Item(1, 0)}), 0, 5, {0})};
  f.encoder.next_status = Internal("no encoder today");
  EXPECT_EQ(f.Apply(plan).message(), "no encoder today");
  f.encoder.missing_rows = 1;
  EXPECT_EQ(f.Apply(plan).message(),
            "the encoder's output is not an embedding of 2 for each of 3 tokens");
  EXPECT_EQ(f.media->num_encoded_items(), 0);
  f.encoder.missing_rows = 0;
  EXPECT_TRUE(f.Apply(plan).ok());

  MediaItem bare = Item(2, 0);
  bare.features = nullptr;
  plan.scheduled = {Entry(0, RequestWith({bare}), 0, 5, {0})};
  EXPECT_FALSE(f.Apply(plan).ok());
  plan.scheduled = {Entry(0, RequestWith({}), 0, 5, {0})};
  EXPECT_FALSE(f.Apply(plan).ok());
}

// Rows of any size, of which two make an embedding: the sum of their first channels, and the row
// coordinate of the first.
class MergingEncoder final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    tokens_of_steps.push_back(batch.num_tokens);
    EXPECT_EQ(batch.inputs[0].shape[0], batch.num_tokens);
    embeddings_.clear();
    for (int32_t m = 0; m < batch.num_media_rows; ++m) {
      const int32_t first = batch.media_rows[m];
      const float* features = batch.inputs[0].Row<const float>(first);
      embeddings_.push_back(features[0] + features[kChannels]);
      embeddings_.push_back(static_cast<float>(batch.grid_positions[first * ops::kGridDims + 1]));
    }
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    const auto rows = static_cast<int64_t>(embeddings_.size()) / kWidth;
    output_ = {"embeddings", TensorView::Dense(embeddings_.data(), DType::kF32, {rows, kWidth})};
    output->outputs = {&output_, 1};
    return OkStatus();
  }

  std::vector<int32_t> tokens_of_steps;

 private:
  std::vector<float> embeddings_;
  program::OutputView output_;
};

// Of 2 * tokens rows, row r with the features {10 content + r, -1} and the coordinate r.
MediaItem ItemOfSize(int32_t content, int32_t first_token, int32_t tokens) {
  auto features = std::make_shared<step::MediaFeatures>();
  features->rows = 2 * tokens;
  features->channels = kChannels;
  for (int32_t r = 0; r < features->rows; ++r) {
    features->values.insert(features->values.end(), {static_cast<float>(10 * content + r), -1.0f});
    features->row_positions.insert(features->row_positions.end(), {0, r, 0});
  }
  features->token_positions.resize(static_cast<size_t>(tokens) * ops::kGridDims);
  features->next_position = 1;
  return {"m" + std::to_string(content), first_token, tokens, features};
}

TEST(MediaEncoder, ItemsOfAnySizeShareTheStepsOfTheEncoder) {
  MergingEncoder encoder;
  const auto media = *MediaEncoder::Create(
      &encoder,
      {.format = {.rows = 10, .channels = kChannels, .tokens = 5, .any_size = true, .grid = true},
       .width = kWidth,
       .max_items = 3,
       .max_step_tokens = 12});
  engine::RunnerLimits limits = SmallLimits();
  limits.media_format = media->options().format;
  BatchState batch(limits);
  std::vector<MediaItem> items = {ItemOfSize(1, 0, 5),  ItemOfSize(2, 6, 1),  ItemOfSize(3, 8, 2),
                                  ItemOfSize(4, 11, 1), ItemOfSize(5, 13, 1), ItemOfSize(6, 15, 1)};
  StepPlan plan;
  plan.scheduled = {Entry(0, RequestWith(items), 0, 20, {0, 1, 2, 3, 4, 5})};
  ASSERT_TRUE(batch.Apply(plan).ok());
  ASSERT_TRUE(media->Apply(plan, batch).ok());
  EXPECT_EQ(encoder.tokens_of_steps, (std::vector<int32_t>{12, 8, 2}))
      << "at most 12 tokens and 3 items";
  ops::StepBatch step = batch.view();
  media->AddTo(&step);
  ASSERT_EQ(step.num_media_rows, 11);
  const float* embeddings = step.inputs[0].Data<const float>();
  int32_t row = 0;
  for (const MediaItem& item : items) {
    for (int32_t t = 0; t < item.num_tokens; ++t, ++row) {
      const float first = item.features->values[static_cast<size_t>(2 * t * kChannels)];
      EXPECT_EQ(step.media_rows[row], item.first_token + t);
      EXPECT_EQ(embeddings[row * kWidth], 2 * first + 1) << item.content_id;
      EXPECT_EQ(embeddings[row * kWidth + 1], static_cast<float>(2 * t)) << item.content_id;
    }
  }
}

TEST(MediaEncoder, TextRowsAreAllOtherTokens) {
  MediaEncoderOptions options = SmallOptions();
  options.text_rows = true;
  Fixture fixture(options);
  const auto text_rows = [&fixture](const ScheduledRequest& first, const ScheduledRequest& second) {
    StepPlan plan;
    plan.scheduled = {first, second};
    EXPECT_TRUE(fixture.Apply(plan).ok());
    const ops::StepBatch step = fixture.Step();
    return std::vector<int32_t>(step.text_rows, step.text_rows + step.num_text_rows);
  };
  const auto media = Entry(1, RequestWith({Item(1, 1)}, kRows + 3), 0, kRows + 3, {0});
  EXPECT_EQ(text_rows(Entry(0, RequestWith({}, 2), 0, 2), media),
            (std::vector<int32_t>{0, 1, 2, 3 + kRows, 4 + kRows}));
  EXPECT_EQ(text_rows(Entry(0, nullptr, 2, 1), Entry(1, nullptr, kRows + 3, 1)),
            (std::vector<int32_t>{0, 1}));
}

// What the 20 tokens of a request get in two steps; the first has `border` and encodes the items.
std::vector<MediaRow> RowsOfTwoSteps(const std::vector<MediaItem>& items,
                                     const std::vector<int32_t>& numbers, int32_t border,
                                     BatchState* batch, MediaEncoder* media) {
  std::vector<MediaRow> rows;
  for (const auto [begin, end] : {std::pair(0, border), std::pair(border, 20)}) {
    StepPlan plan;
    plan.scheduled = {begin == 0 ? Entry(0, RequestWith(items), 0, end, numbers)
                                 : Entry(0, nullptr, begin, end - begin)};
    EXPECT_TRUE(batch->Apply(plan).ok());
    EXPECT_TRUE(media->Apply(plan, *batch).ok());
    ops::StepBatch step = batch->view();
    media->AddTo(&step);
    for (int32_t m = 0; m < step.num_media_rows; ++m) {
      const float* row = step.inputs[0].Row<const float>(m);
      rows.push_back({begin + step.media_rows[m], {row, row + kWidth}});
    }
  }
  return rows;
}

TEST(MediaEncoder, EndsOfRowsKeepTheirOwnEmbeddings) {
  MergingEncoder encoder;
  const auto media = *MediaEncoder::Create(
      &encoder,
      {.format = {.rows = 20, .channels = kChannels, .tokens = 10, .any_size = true, .grid = true},
       .width = kWidth});
  engine::RunnerLimits limits = SmallLimits();
  limits.media_format = media->options().format;
  for (const int32_t border : {3, 6, 7, 8, 11}) {  // of two steps, within rows and between
    BatchState batch(limits);
    MediaItem item = ItemOfSize(1, 3, 6);
    auto features = std::make_shared<step::MediaFeatures>(*item.features);
    features->row_tokens = 3;
    features->token_positions.resize(8 * ops::kGridDims);
    item.features = features;
    item.num_tokens = 8;
    const auto rows = RowsOfTwoSteps({item}, {0}, border, &batch, media.get());
    std::vector<MediaRow> expected;
    for (int32_t e = 0; e < 6; ++e) {
      const auto first = static_cast<float>(10 + 2 * e);
      expected.push_back({3 + e + e / 3, {2 * first + 1, static_cast<float>(2 * e)}});
    }
    EXPECT_TRUE(rows == expected) << border;
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
    TilesEncoder encoder;
    const auto media = *MediaEncoder::Create(&encoder, {.format = kTiles,
                                                        .class_tokens = 1,
                                                        .width = kWidth,
                                                        .max_items = max_items,
                                                        .tile_rows = 2});
    BatchState batch(SmallLimits());
    const auto rows =
        RowsOfTwoSteps({ItemOfTiles(3), ItemOfShares(11)}, {0, 1}, 6, &batch, media.get());
    const std::vector<float> end = {-7, kWidth};
    const std::vector<MediaRow> expected = {{3, {0, 1}},  {4, {1, 2}}, {5, {2, 1}}, {6, {4, 1}},
                                            {7, end},     {8, {3, 2}}, {9, {5, 2}}, {10, end},
                                            {11, {3, 1}}, {12, end}};
    EXPECT_TRUE(rows == expected) << max_items;
    EXPECT_EQ(encoder.num_steps, (6 + max_items - 1) / max_items);
    EXPECT_EQ(media->num_encoded_items(), 2);
  }
}

TEST(MediaEncoder, EndsOfRowsNeedAnEmbedding) {
  TilesEncoder encoder;
  encoder.has_row_end = false;
  const auto media =
      *MediaEncoder::Create(&encoder, {.format = kTiles, .width = kWidth, .tile_rows = 2});
  BatchState batch(SmallLimits());
  StepPlan plan;
  plan.scheduled = {Entry(0, RequestWith({ItemOfTiles(3)}), 0, 20, {0})};
  ASSERT_TRUE(batch.Apply(plan).ok());
  EXPECT_NE(media->Apply(plan, batch).message().find("no embedding for them"), std::string::npos);
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
  ClassEncoder encoder;
  const auto media = *MediaEncoder::Create(
      &encoder, {.format = {.rows = 6, .channels = kChannels, .tokens = 3, .any_size = true},
                 .class_tokens = 1,
                 .width = kWidth,
                 .max_items = 2});
  engine::RunnerLimits limits = SmallLimits();
  limits.media_format = media->options().format;
  BatchState batch(limits);
  std::vector<MediaItem> items = {ItemOfSize(1, 0, 2), ItemOfSize(2, 4, 1)};
  for (MediaItem& item : items) {
    auto features = std::make_shared<step::MediaFeatures>(*item.features);
    features->row_positions.clear();
    features->token_positions.clear();
    features->values.insert(features->values.end(), {99.0f, -1.0f});  // makes no whole embedding
    ++features->rows;
    item.features = features;
  }
  StepPlan plan;
  plan.scheduled = {Entry(0, RequestWith(items), 0, 20, {0, 1})};
  ASSERT_TRUE(batch.Apply(plan).ok());
  ASSERT_TRUE(media->Apply(plan, batch).ok());
  ops::StepBatch step = batch.view();
  media->AddTo(&step);
  ASSERT_EQ(step.num_media_rows, 3);
  const std::vector<float> first = {10, 12, 20};  // every second row of an item
  for (int32_t m = 0; m < 3; ++m) {
    EXPECT_EQ(step.inputs[0].Row<const float>(m)[0], first[static_cast<size_t>(m)]);
  }
}

TEST(MediaEncoder, OptionsAreChecked) {
  FakeEncoder encoder;
  MediaEncoderOptions options = SmallOptions();
  options.width = 0;
  EXPECT_EQ(MediaEncoder::Create(&encoder, options).status().message(),
            "media encoder: width must be at least 1, got 0");
  options = SmallOptions();
  options.max_step_tokens = kRows;
  EXPECT_EQ(MediaEncoder::Create(&encoder, options).status().message(),
            "media encoder: max_step_tokens must be at least 4, got 3");
}

// Requests with images at random places, run in random chunks, side by side. What each token gets
// follows from its request alone.
TEST(MediaEncoder, EveryTokenGetsTheEmbeddingOfItsPlace) {
  std::mt19937 random(7);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % n); };
  struct Running {
    std::shared_ptr<const Request> request;
    std::vector<int32_t> contents;
    int32_t computed = 0;
  };
  Fixture f;
  std::vector<Running> slots(4);
  std::vector<std::string> kept;
  for (int step = 0; step < 400; ++step) {
    StepPlan plan;
    std::vector<MediaRow> expected;
    if (!kept.empty() && below(3) == 0) {
      plan.released_media.push_back(
          kept[static_cast<size_t>(below(static_cast<int32_t>(kept.size())))]);
      std::erase(kept, plan.released_media[0]);
    }
    int32_t first = 0;
    for (int32_t slot = 0; slot < 4; ++slot) {
      Running& running = slots[static_cast<size_t>(slot)];
      if (below(3) == 0) continue;
      ScheduledRequest entry = Entry(slot, nullptr, 0, 0);
      if (running.request == nullptr) {
        running = {};
        std::vector<MediaItem> media;
        for (int32_t at = below(4); at + kRows <= 20; at += kRows + below(5)) {
          running.contents.push_back(below(6));
          media.push_back(Item(running.contents.back(), at));
        }
        entry.start = running.request = RequestWith(std::move(media));
      }
      const int32_t count = 1 + below(std::min(9, 20 - running.computed));
      entry.num_computed_tokens = running.computed;
      entry.token_ids.assign(static_cast<size_t>(count), 1);
      for (size_t i = 0; i < running.contents.size(); ++i) {
        const MediaItem& item = running.request->media[i];
        bool needed = false;
        for (int32_t row = 0; row < kRows; ++row) {
          const int32_t at = item.first_token + row - running.computed;
          if (at < 0 || at >= count) continue;
          needed = true;
          expected.push_back({first + at, EmbeddingOf(running.contents[i], row)});
        }
        if (!needed || std::find(kept.begin(), kept.end(), item.content_id) != kept.end()) continue;
        kept.push_back(item.content_id);
        entry.media_to_encode.push_back(static_cast<int32_t>(i));
      }
      first += count;
      running.computed += count;
      if (running.computed == 20) running.request = nullptr;
      plan.scheduled.push_back(std::move(entry));
    }
    ASSERT_TRUE(f.Apply(plan).ok()) << step;
    ASSERT_TRUE(f.Rows() == expected) << step;
  }
  EXPECT_GT(f.media->num_encoded_items(), 50);
}

}  // namespace
}  // namespace pagemill::runner
