// File: cc/runner/testing/fake_encoder.h
// Encoders of media whose embeddings are known, and items for them.
//
//   FakeEncoder executor;
//   auto encoder = *MediaEncoder::Create(&executor, FakeEncoderOptions());
//   ... encode FakeItem(1, 0): its token r gets FakeEmbedding(1, r) ...
#ifndef PAGEMILL_CC_RUNNER_TESTING_FAKE_ENCODER_H_
#define PAGEMILL_CC_RUNNER_TESTING_FAKE_ENCODER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/program/executor.h"
#include "cc/runner/media/media_encoder.h"
#include "cc/step/media_item.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"
#include "cc/tensor/to_float.h"

namespace pagemill::runner {

inline constexpr int32_t kRows = 3, kChannels = 2, kClassTokens = 1, kWidth = 2;

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

inline MediaEncoderOptions FakeEncoderOptions() {
  return {.format = {.rows = kRows, .channels = kChannels, .tokens = kRows},
          .class_tokens = kClassTokens,
          .width = kWidth,
          .max_items = 2};
}

// Item number `content` and row r have the features {10 content + r, -1}.
inline step::MediaItem FakeItem(int32_t content, int32_t first_token) {
  auto features = std::make_shared<step::MediaFeatures>();
  features->rows = kRows;
  features->channels = kChannels;
  for (int32_t r = 0; r < kRows; ++r) {
    features->values.push_back(static_cast<float>(10 * content + r));
    features->values.push_back(-1);
  }
  return {"m" + std::to_string(content), first_token, kRows, features};
}

inline std::vector<float> FakeEmbedding(int32_t content, int32_t row) {
  return {static_cast<float>(2 * (10 * content + row)), static_cast<float>(kClassTokens + row)};
}

// Rows of any size, of which two make an embedding: the sum of their first channels, and the row
// coordinate of the first.
class MergingEncoder : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    if (!next_status.ok()) return std::exchange(next_status, OkStatus());
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
  Status next_status;

 private:
  std::vector<float> embeddings_;
  program::OutputView output_;
};

// Of 2 * tokens rows, row r with the features {10 content + r, -1} and the coordinate r.
inline step::MediaItem ItemOfSize(int32_t content, int32_t first_token, int32_t tokens) {
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

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_TESTING_FAKE_ENCODER_H_
