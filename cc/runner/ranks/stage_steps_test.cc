#include "cc/runner/ranks/stage_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/runner/ranks/rank_steps.h"

namespace pagemill::runner {
namespace {

using program::testing::BatchBuilder;

constexpr int32_t kWidth = 600;  // of hidden states: those of two tokens exceed the first piece
constexpr StepBounds kBounds = {.max_num_tokens = 256,
                                .max_num_seqs = 8,
                                .max_num_logits_rows = 8,
                                .num_blocks = 400,
                                .input_bytes = 2 * 256 * kWidth * 4};

// A stage whose "hidden" is its input, or the token ids, times ten plus the number of the stage.
// Keeps the block sizes of its tables.
class FakeStage final : public program::Executor {
 public:
  explicit FakeStage(int32_t number) : number_(number) {}

  Status Enqueue(const ops::StepBatch& batch) override {
    tokens_ = batch.num_tokens;
    values_.clear();
    for (int64_t i = 0; i < int64_t{tokens_} * kWidth; ++i) {
      const float before = batch.inputs.empty() ? static_cast<float>(batch.token_ids[i / kWidth])
                                                : batch.inputs[0].Data<const float>()[i];
      values_.push_back(10 * before + static_cast<float>(number_));
    }
    num_inputs = batch.inputs.size();
    block_sizes.clear();
    for (const ops::KvArrays& table : batch.kv) block_sizes.push_back(table.block_size);
    ++num_steps;
    return failure;
  }
  Status Collect(program::ExecutorOutput* output) override {
    views_ = {{"hidden", TensorView::Dense(values_.data(), DType::kF32, {tokens_, kWidth})}};
    output->outputs = views_;
    return OkStatus();
  }

  Status failure;
  size_t num_inputs = 0;
  std::vector<int32_t> block_sizes;
  std::atomic<int32_t> num_steps = 0;

 private:
  const int32_t number_;
  int32_t tokens_ = 0;
  std::vector<float> values_;
  std::vector<program::OutputView> views_;
};

// Those of three stages, of which rank 0 has the last.
Stage StageOfRank(int32_t rank) {
  if (rank == 1) return {.tables = {0}, .receives = {}, .sends = {"hidden"}};
  if (rank == 2) return {.tables = {1}, .receives = {"hidden"}, .sends = {"hidden"}};
  return {.tables = {1, 0}, .receives = {"hidden"}, .sends = {}};
}

BatchBuilder Step(int32_t first, int32_t count) {
  BatchBuilder arrays(std::vector<int32_t>{16, 48}, 150);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(first + i);
  arrays.Add(0, 3, ids);
  return arrays;
}

// Rank 0 runs `lead`; the others follow. Returns how those ended.
template <typename Lead>
std::vector<Status> RunStages(std::vector<std::unique_ptr<FakeStage>>& stages, const Lead& lead) {
  const auto count = static_cast<int32_t>(stages.size());
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.pipeline = count}, .slot_bytes = 4096});
  std::vector<Status> ends(stages.size());
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, rank))->groups();
      comm::Group* group = groups.at(comm::Axis::kPipeline);
      FakeStage& own = *stages[static_cast<size_t>(rank)];
      if (rank > 0) {
        ends[static_cast<size_t>(rank)] = FollowStages(&own, *group, kBounds, StageOfRank(rank));
        return;
      }
      StagedExecutor staged(&own, group, kBounds, StageOfRank(0));
      lead(staged);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// The ranks behind the first have noticed that rank 0 is done.
void ExpectEnded(const std::vector<Status>& ends) {
  for (size_t rank = 1; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank].code(), StatusCode::kUnavailable) << ends[rank].ToString();
  }
}

std::vector<std::unique_ptr<FakeStage>> ThreeStages() {
  std::vector<std::unique_ptr<FakeStage>> stages;
  for (const int32_t number : {3, 1, 2}) stages.push_back(std::make_unique<FakeStage>(number));
  return stages;
}

// The values of the last stage: all of a row are equal.
std::vector<float> Rows(const program::ExecutorOutput& output) {
  const TensorView hidden = output.Find("hidden");
  std::vector<float> rows;
  for (int64_t r = 0; r < hidden.shape[0]; ++r) {
    const float* row = hidden.Row<const float>(r);
    EXPECT_TRUE(std::all_of(row, row + kWidth, [row](float x) { return x == row[0]; }));
    rows.push_back(row[0]);
  }
  return rows;
}

TEST(StageStepsTest, AStepPassesThroughAllStages) {
  auto stages = ThreeStages();
  const std::vector<Status> ends = RunStages(stages, [](StagedExecutor& staged) {
    program::ExecutorOutput output;
    ASSERT_TRUE(staged.Execute(Step(5, 2).view(), &output).ok());
    EXPECT_EQ(Rows(output), (std::vector<float>{5123, 6123}));
    ASSERT_TRUE(staged.Execute(Step(1, 100).view(), &output).ok());
    EXPECT_EQ(Rows(output)[99], 100123);
  });
  ExpectEnded(ends);
  EXPECT_EQ(stages[1]->block_sizes, std::vector<int32_t>{16});
  EXPECT_EQ(stages[2]->block_sizes, std::vector<int32_t>{48});
  EXPECT_EQ(stages[0]->block_sizes, (std::vector<int32_t>{48, 16}));
  EXPECT_EQ(stages[1]->num_inputs, 0u);
}

// Large steps, which no rank can send before the next takes them.
TEST(StageStepsTest, AsManyStepsAreInFlightAsThereAreStages) {
  auto stages = ThreeStages();
  const std::vector<Status> ends = RunStages(stages, [](StagedExecutor& staged) {
    ASSERT_EQ(staged.max_steps_in_flight(), 3);
    EXPECT_TRUE(staged.pipelined());
    program::ExecutorOutput output;
    for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(staged.Enqueue(Step(i, 200).view()).ok());
    EXPECT_EQ(staged.Enqueue(Step(3, 1).view()).code(), StatusCode::kFailedPrecondition);
    for (int32_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(staged.Collect(&output).ok());
      EXPECT_EQ(Rows(output)[0], static_cast<float>(1000 * i + 123));
      ASSERT_TRUE(staged.Enqueue(Step(i + 3, 200).view()).ok());
    }
    for (int32_t i = 20; i < 23; ++i) {
      ASSERT_TRUE(staged.Collect(&output).ok());
      EXPECT_EQ(Rows(output)[0], static_cast<float>(1000 * i + 123));
    }
    EXPECT_EQ(staged.Collect(&output).code(), StatusCode::kFailedPrecondition);
  });
  ExpectEnded(ends);
}

TEST(StageStepsTest, StagesWorkOnDifferentStepsAtTheSameTime) {
  auto stages = ThreeStages();
  RunStages(stages, [&stages](StagedExecutor& staged) {
    program::ExecutorOutput output;
    for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(staged.Enqueue(Step(i, 200).view()).ok());
    while (stages[1]->num_steps < 3) std::this_thread::yield();  // or the test would hang
    EXPECT_EQ(stages[0]->num_steps, 0) << "the last stage computes when a step is collected";
    for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(staged.Collect(&output).ok());
  });
}

TEST(StageStepsTest, AStageThatFailsAStepEndsThePipeline) {
  auto stages = ThreeStages();
  stages[2]->failure = Internal("out of order");
  const std::vector<Status> ends = RunStages(stages, [](StagedExecutor& staged) {
    program::ExecutorOutput output;
    const Status status = staged.Execute(Step(1, 1).view(), &output);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  });
  EXPECT_EQ(ends[1].code(), StatusCode::kUnavailable);
  EXPECT_EQ(ends[2].message(), "out of order");
}

TEST(StageStepsTest, AFailureOfTheLastStageIsThatOfItsStep) {
  auto stages = ThreeStages();
  stages[0]->failure = Internal("no");
  const std::vector<Status> ends = RunStages(stages, [&stages](StagedExecutor& staged) {
    program::ExecutorOutput output;
    EXPECT_EQ(staged.Execute(Step(1, 1).view(), &output).message(), "no");
    stages[0]->failure = OkStatus();
    ASSERT_TRUE(staged.Execute(Step(5, 1).view(), &output).ok()) << "the pipeline goes on";
    EXPECT_EQ(Rows(output), std::vector<float>{5123});
  });
  ExpectEnded(ends);
}

TEST(StageStepsTest, AStepBeyondTheBoundsIsRefusedBeforeItIsSent) {
  auto stages = ThreeStages();
  const std::vector<Status> ends = RunStages(stages, [](StagedExecutor& staged) {
    program::ExecutorOutput output;
    EXPECT_NE(staged.Enqueue(Step(0, 257).view()).message().find("a step of 257 tokens exceeds"),
              std::string::npos);
    ASSERT_TRUE(staged.Execute(Step(5, 1).view(), &output).ok());
  });
  ExpectEnded(ends);
  EXPECT_EQ(stages[1]->num_steps, 1);
}

TEST(StageStepsTest, StepsInFlightAreDroppedWhenRank0Ends) {
  auto stages = ThreeStages();
  const std::vector<Status> ends = RunStages(stages, [](StagedExecutor& staged) {
    for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(staged.Enqueue(Step(i, 200).view()).ok());
  });
  ExpectEnded(ends);
}

// Two ranks for each of two stages: the other rank of the last one runs and collects what rank 0
// does, when it does.
TEST(StageStepsTest, RanksOfAStageHaveRingsOfTheirOwn) {
  std::vector<std::unique_ptr<FakeStage>> ranks;
  for (const int32_t number : {2, 2, 1, 1}) ranks.push_back(std::make_unique<FakeStage>(number));
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.pipeline = 2, .tensor = 2}, .slot_bytes = 4096});
  const Stage first = {.tables = {0}, .receives = {}, .sends = {"hidden"}};
  const Stage last = {.tables = {0}, .receives = {"hidden"}, .sends = {}};
  std::vector<Status> ends(4);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, rank))->groups();
      comm::Group* pipeline = groups.at(comm::Axis::kPipeline);
      comm::Group* tensor = groups.at(comm::Axis::kTensor);
      FakeStage& own = *ranks[static_cast<size_t>(rank)];
      Status& end = ends[static_cast<size_t>(rank)];
      if (rank >= 2) {
        end = FollowStages(&own, *pipeline, kBounds, first);
        return;
      }
      StagedExecutor staged(&own, pipeline, kBounds, last);
      if (rank == 1) {
        end = FollowSteps(&staged, *tensor, kBounds);
        return;
      }
      LeadingExecutor leading(&staged, tensor, kBounds);
      EXPECT_TRUE(leading.pipelined());
      program::ExecutorOutput output;
      ASSERT_TRUE(leading.Enqueue(Step(1, 3).view()).ok());
      ASSERT_TRUE(leading.Enqueue(Step(2, 3).view()).ok());
      ASSERT_TRUE(leading.Collect(&output).ok());
      EXPECT_EQ(Rows(output)[0], 112);
      ASSERT_TRUE(leading.Enqueue(Step(3, 3).view()).ok());
      ASSERT_TRUE(leading.Collect(&output).ok());
      ASSERT_TRUE(leading.Collect(&output).ok());
      EXPECT_EQ(Rows(output)[0], 312);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(ends[1].ok()) << ends[1].ToString();
  ExpectEnded({Status(), ends[2], ends[3]});
  for (const auto& rank : ranks) EXPECT_EQ(rank->num_steps, 3);
}

}  // namespace
}  // namespace pagemill::runner
