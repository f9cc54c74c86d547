#include "cc/runner/media/media_embeddings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/runner/testing/fake_encoder.h"
#include "cc/tensor/to_float.h"

namespace pagemill::runner {
namespace {

using step::MediaItem;
using step::Request;
using step::RequestIndex;
using step::ScheduledRequest;
using step::StepPlan;

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

std::unique_ptr<MediaEmbeddings> MakeMedia(program::Executor* executor,
                                           const MediaEncoderOptions& encoder_options,
                                           const MediaEmbeddingsOptions& options = {}) {
  std::vector<std::unique_ptr<MediaEncoder>> encoders;
  encoders.push_back(*MediaEncoder::Create(executor, encoder_options));
  return *MediaEmbeddings::Create(std::move(encoders), options);
}

// An encoder and what the model's program would see of a plan.
class Fixture {
 public:
  explicit Fixture(const MediaEncoderOptions& encoder_options = FakeEncoderOptions(),
                   const MediaEmbeddingsOptions& options = {})
      : media(MakeMedia(&encoder, encoder_options, options)), batch_(SmallLimits()) {}

  Status Apply(const StepPlan& plan) {
    PAGEMILL_RETURN_IF_ERROR(batch_.Apply(plan));
    return media->Apply(plan, batch_, nullptr);
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
  std::unique_ptr<MediaEmbeddings> media;

 private:
  BatchState batch_;
};

TEST(MediaEmbeddings, GathersTheEmbeddingsOfTheStepsTokens) {
  Fixture f;
  const auto request = RequestWith({FakeItem(1, 2), FakeItem(2, 5)});
  StepPlan plan;
  plan.scheduled = {Entry(0, request, 0, 6, {0, 1}), Entry(1, RequestWith({}), 0, 2),
                    Entry(2, RequestWith({FakeItem(1, 0)}), 0, 1)};
  ASSERT_TRUE(f.Apply(plan).ok());
  const std::vector<MediaRow> expected = {{2, FakeEmbedding(1, 0)},
                                          {3, FakeEmbedding(1, 1)},
                                          {4, FakeEmbedding(1, 2)},
                                          {5, FakeEmbedding(2, 0)},
                                          {8, FakeEmbedding(1, 0)}};
  EXPECT_TRUE(f.Rows() == expected);
  EXPECT_EQ(f.media->num_encoded_items(), 2);
  EXPECT_EQ(f.encoder.num_steps, 1) << "items are encoded together";

  StepPlan rest;
  rest.scheduled = {Entry(0, nullptr, 6, 14)};
  ASSERT_TRUE(f.Apply(rest).ok());
  const std::vector<MediaRow> others = {{0, FakeEmbedding(2, 1)}, {1, FakeEmbedding(2, 2)}};
  EXPECT_TRUE(f.Rows() == others);
  EXPECT_EQ(f.encoder.num_steps, 1);
}

TEST(MediaEmbeddings, NarrowTypesAreRoundedOnTheWay) {
  MediaEncoderOptions options = FakeEncoderOptions();
  options.features_type = DType::kBF16;
  Fixture f(options, {.type = DType::kBF16});
  StepPlan plan;
  plan.scheduled = {Entry(0, RequestWith({FakeItem(3, 0)}), 0, 20, {0})};
  ASSERT_TRUE(f.Apply(plan).ok());
  EXPECT_TRUE(f.Rows()[2] == (MediaRow{2, FakeEmbedding(3, 2)}));
}

TEST(MediaEmbeddings, WhatIsReleasedIsGoneAndMayBeMadeAgain) {
  Fixture f;
  const auto request = RequestWith({FakeItem(1, 0)});
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

TEST(MediaEmbeddings, AFailedStepKeepsNothing) {
  Fixture f;
  StepPlan plan;
  plan.scheduled = {Entry(0, RequestWith({FakeItem(1, 0)}), 0, 5, {0})};
  f.encoder.next_status = Internal("no encoder today");
  EXPECT_EQ(f.Apply(plan).message(), "no encoder today");
  f.encoder.missing_rows = 1;
  EXPECT_EQ(f.Apply(plan).message(),
            "the encoder's output is not an embedding of 2 for each of 3 tokens");
  EXPECT_EQ(f.media->num_encoded_items(), 0);
  f.encoder.missing_rows = 0;
  EXPECT_TRUE(f.Apply(plan).ok());

  MediaItem bare = FakeItem(2, 0);
  bare.features = nullptr;
  plan.scheduled = {Entry(0, RequestWith({bare}), 0, 5, {0})};
  EXPECT_FALSE(f.Apply(plan).ok());
  plan.scheduled = {Entry(0, RequestWith({}), 0, 5, {0})};
  EXPECT_FALSE(f.Apply(plan).ok());
}

TEST(MediaEmbeddings, TextRowsAreAllOtherTokens) {
  Fixture fixture(FakeEncoderOptions(), {.text_rows = true});
  const auto text_rows = [&fixture](const ScheduledRequest& first, const ScheduledRequest& second) {
    StepPlan plan;
    plan.scheduled = {first, second};
    EXPECT_TRUE(fixture.Apply(plan).ok());
    const ops::StepBatch step = fixture.Step();
    return std::vector<int32_t>(step.text_rows, step.text_rows + step.num_text_rows);
  };
  const auto media = Entry(1, RequestWith({FakeItem(1, 1)}, kRows + 3), 0, kRows + 3, {0});
  EXPECT_EQ(text_rows(Entry(0, RequestWith({}, 2), 0, 2), media),
            (std::vector<int32_t>{0, 1, 2, 3 + kRows, 4 + kRows}));
  EXPECT_EQ(text_rows(Entry(0, nullptr, 2, 1), Entry(1, nullptr, kRows + 3, 1)),
            (std::vector<int32_t>{0, 1}));
}

TEST(MediaEmbeddings, ADecoderBeginsBehindTheRowsOfItsEncoder) {
  Fixture fixture(FakeEncoderOptions(), {.text_rows = true, .encoder_ends = true});
  const auto expect = [&fixture](const std::vector<ScheduledRequest>& entries,
                                 const std::vector<int32_t>& ends,
                                 const std::vector<int32_t>& positions) {
    StepPlan plan;
    plan.scheduled = entries;
    EXPECT_TRUE(fixture.Apply(plan).ok());
    const ops::StepBatch step = fixture.Step();
    const auto of_step = [&step](const int32_t* array) {
      return std::vector<int32_t>(array, array + step.num_tokens);
    };
    EXPECT_EQ(of_step(step.encoder_ends), ends);
    EXPECT_EQ(of_step(step.decoder_positions), positions);
  };
  // The first has no encoder's rows, and the second as many as an item.
  const auto second = Entry(1, RequestWith({FakeItem(1, 0)}, kRows + 2), 0, kRows + 2, {0});
  expect({Entry(0, RequestWith({}, 2), 0, 2), second}, {1, 1, 3, 3, 3, 3, 3},
         {0, 1, 0, 0, 0, 0, 1});
  expect({Entry(0, nullptr, 2, 1), Entry(1, nullptr, kRows + 2, 1)}, {1, 3}, {2, 2});
}

// What the 20 tokens of a request get in two steps; the first has `border` and encodes the items.
std::vector<MediaRow> RowsOfTwoSteps(const std::vector<MediaItem>& items,
                                     const std::vector<int32_t>& numbers, int32_t border,
                                     BatchState* batch, MediaEmbeddings* media) {
  std::vector<MediaRow> rows;
  for (const auto& [begin, end] : {std::pair(0, border), std::pair(border, 20)}) {
    StepPlan plan;
    plan.scheduled = {begin == 0 ? Entry(0, RequestWith(items), 0, end, numbers)
                                 : Entry(0, nullptr, begin, end - begin)};
    EXPECT_TRUE(batch->Apply(plan).ok());
    EXPECT_TRUE(media->Apply(plan, *batch, nullptr).ok());
    ops::StepBatch step = batch->view();
    media->AddTo(&step);
    for (int32_t m = 0; m < step.num_media_rows; ++m) {
      const float* row = step.inputs[0].Row<const float>(m);
      rows.push_back({begin + step.media_rows[m], {row, row + kWidth}});
    }
  }
  return rows;
}

TEST(MediaEmbeddings, EndsOfRowsKeepTheirOwnEmbeddings) {
  MergingEncoder encoder;
  const auto media = MakeMedia(
      &encoder,
      {.format = {.rows = 20, .channels = kChannels, .tokens = 10, .any_size = true, .grid = true},
       .width = kWidth});
  engine::RunnerLimits limits = SmallLimits();
  limits.media_formats = media->formats();
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

// Two encoders; an item of the second has the same features, and other embeddings.
class TwoEncoders : public testing::Test {
 protected:
  TwoEncoders() : batch_(SmallLimits()) {
    std::vector<std::unique_ptr<MediaEncoder>> encoders;
    encoders.push_back(*MediaEncoder::Create(&patches_, FakeEncoderOptions()));
    encoders.push_back(*MediaEncoder::Create(&frames_, kFrames));
    media_ = *MediaEmbeddings::Create(std::move(encoders), {});
  }

  // An item of the second encoder, whose token t gets {20 content + 4 t + 1, 2 t}.
  static MediaItem Frames(int32_t content, int32_t first_token, int32_t tokens) {
    MediaItem item = ItemOfSize(content, first_token, tokens);
    auto features = std::make_shared<step::MediaFeatures>(*item.features);
    features->encoder = 1;
    item.content_id = "f" + std::to_string(content);
    item.features = features;
    return item;
  }

  Status Apply(const std::vector<MediaItem>& media, const std::vector<int32_t>& to_encode) {
    StepPlan plan;
    plan.scheduled = {Entry(0, RequestWith(media), 0, 20, to_encode)};
    PAGEMILL_RETURN_IF_ERROR(batch_.Apply(plan));
    return media_->Apply(plan, batch_, nullptr);
  }

  inline static const MediaEncoderOptions kFrames = {
      .format = {.rows = 10, .channels = kChannels, .tokens = 5, .any_size = true, .grid = true},
      .width = kWidth};
  FakeEncoder patches_;
  MergingEncoder frames_;
  std::unique_ptr<MediaEmbeddings> media_;
  BatchState batch_;
};

TEST_F(TwoEncoders, EachEncodesItsOwnItems) {
  ASSERT_EQ(media_->formats().size(), 2u);
  ASSERT_TRUE(
      Apply({FakeItem(1, 0), Frames(2, 4, 2), FakeItem(3, 7), Frames(4, 11, 1)}, {0, 1, 2, 3})
          .ok());
  EXPECT_EQ(patches_.num_steps, 1);
  EXPECT_EQ(frames_.tokens_of_steps, (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(media_->num_encoded_items(), 4);
  ops::StepBatch step = batch_.view();
  media_->AddTo(&step);
  const std::vector<MediaRow> expected = {{0, FakeEmbedding(1, 0)},
                                          {1, FakeEmbedding(1, 1)},
                                          {2, FakeEmbedding(1, 2)},
                                          {4, {41, 0}},
                                          {5, {45, 2}},
                                          {7, FakeEmbedding(3, 0)},
                                          {8, FakeEmbedding(3, 1)},
                                          {9, FakeEmbedding(3, 2)},
                                          {11, {81, 0}}};
  ASSERT_EQ(static_cast<size_t>(step.num_media_rows), expected.size());
  for (int32_t m = 0; m < step.num_media_rows; ++m) {
    const float* row = step.inputs[0].Row<const float>(m);
    EXPECT_TRUE((MediaRow{step.media_rows[m], {row, row + kWidth}}) ==
                expected[static_cast<size_t>(m)])
        << m;
  }
}

TEST_F(TwoEncoders, WhatOneMadeIsNotKeptIfTheOtherFails) {
  const std::vector<MediaItem> media = {Frames(1, 0, 2), FakeItem(2, 5)};
  patches_.next_status = Internal("not today");
  EXPECT_EQ(Apply(media, {0, 1}).message(), "not today");
  EXPECT_NE(Apply(media, {}).message().find("'f1' is needed"), std::string::npos);
  EXPECT_TRUE(Apply(media, {0, 1}).ok());
  frames_.next_status = Internal("nor tomorrow");
  EXPECT_EQ(Apply(media, {0, 1}).message(), "nor tomorrow");
  EXPECT_NE(Apply({FakeItem(2, 5)}, {}).message().find("'m2' is needed"), std::string::npos);
}

TEST_F(TwoEncoders, ItemsOfOtherEncodersAreAnError) {
  MediaItem item = Frames(1, 0, 2);
  auto features = std::make_shared<step::MediaFeatures>(*item.features);
  features->encoder = 2;
  item.features = features;
  EXPECT_NE(Apply({item}, {0}).message().find("for encoder 2, but this model has 2"),
            std::string::npos);
}

TEST(MediaEmbeddings, EncodersMakeEmbeddingsOfOneWidth) {
  EXPECT_FALSE(MediaEmbeddings::Create({}, {}).ok());
  FakeEncoder executor;
  MediaEncoderOptions wider = FakeEncoderOptions();
  wider.width = kWidth + 1;
  std::vector<std::unique_ptr<MediaEncoder>> encoders;
  for (const MediaEncoderOptions& options : {FakeEncoderOptions(), wider}) {
    encoders.push_back(*MediaEncoder::Create(&executor, options));
  }
  EXPECT_EQ(MediaEmbeddings::Create(std::move(encoders), {}).status().message(),
            "encoders make embeddings of 2 and of 3, but a model reads those of one width");
}

// Requests with images at random places, run in random chunks, side by side. What each token gets
// follows from its request alone.
TEST(MediaEmbeddings, EveryTokenGetsTheEmbeddingOfItsPlace) {
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
          media.push_back(FakeItem(running.contents.back(), at));
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
          expected.push_back({first + at, FakeEmbedding(running.contents[i], row)});
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
