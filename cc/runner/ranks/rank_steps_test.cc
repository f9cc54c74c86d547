#include "cc/runner/ranks/rank_steps.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/testing/hash_model.h"

namespace pagemill::runner {
namespace {

using program::testing::BatchBuilder;

constexpr StepBounds kBounds = {.max_num_tokens = 4096,
                                .max_num_seqs = 8,
                                .max_num_logits_rows = 8,
                                .num_blocks = 400,
                                .input_bytes = 40000};

// Keeps the batches that it receives, as text; may fail.
class Recorder final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& b) override {
    std::string text;
    const auto add = [&](std::string_view name, const int32_t* data, int64_t size) {
      text.append(" ").append(name);
      for (int64_t i = 0; i < size; ++i) text += " " + std::to_string(data[i]);
    };
    for (const auto& info : ops::kStepNumbers) add(info.name, &(b.*info.value), 1);
    for (const auto& info : ops::kStepArrays) {
      if (info.if_declared && b.*info.data == nullptr) continue;
      add(info.name, b.*info.data, NumRows(info, b) * info.columns);
    }
    for (const TensorView& input : b.inputs) {
      text += " " + std::string(Info(input.dtype).name);
      for (int64_t size : input.shape) text += " " + std::to_string(size);
      for (int64_t i = 0; i < input.Elements() * RowBytes(input.dtype, 1); ++i) {
        text += " " + std::to_string(input.Data<const uint8_t>()[i]);
      }
    }
    for (const ops::KvArrays& table : b.kv) {
      for (const auto& info : ops::kKvNumbers) add(info.name, &(table.*info.value), 1);
      add("slots", table.slot_mapping, b.num_tokens);
      for (int32_t r = 0; r < b.num_requests; ++r) {
        const int64_t blocks = (b.seq_lens[r] + table.block_size - 1) / table.block_size;
        add("table", table.block_table + r * table.block_table_stride, blocks);
      }
    }
    steps.push_back(text);
    return failure;
  }
  Status Collect(program::ExecutorOutput*) override { return lost; }

  std::vector<std::string> steps;
  Status failure;  // of Enqueue()
  Status lost;     // of Collect()
};

std::vector<int32_t> Tokens(int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(7 * i % 1000);
  return ids;
}

BatchBuilder Step(int32_t first, int32_t second) {
  BatchBuilder arrays(std::vector<int32_t>{16, 48}, 150);
  arrays.Add(0, 3, Tokens(first));
  arrays.Add(1, 40, Tokens(second));
  return arrays;
}

TEST(RankStepsTest, RanksFollowAdapters) {
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.tensor = 2}, .slot_bytes = 4096});
  std::vector<std::string> calls;
  Status end;
  std::thread other([&] {
    const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, 1))->groups();
    Recorder executor;
    const FollowedAdapters adapters = {
        .set =
            [&](int32_t slot, step::AdapterId id) {
              calls.push_back("set " + std::to_string(slot) + " " + std::to_string(id.value()));
              return OkStatus();
            },
        .forget =
            [&](step::AdapterId id) { calls.push_back("forget " + std::to_string(id.value())); }};
    end = FollowSteps(&executor, *groups.at(comm::Axis::kTensor), kBounds, adapters);
    calls.push_back(std::to_string(executor.steps.size()) + " steps");
  });
  {
    const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, 0))->groups();
    Recorder executor;
    LeadingExecutor leading(&executor, groups.at(comm::Axis::kTensor), kBounds);
    EXPECT_TRUE(leading.SetAdapter(3, step::AdapterId(uint64_t{1} << 40 | 7)).ok());
    EXPECT_TRUE(leading.Enqueue(Step(1, 1).view()).ok());
    EXPECT_TRUE(leading.ForgetAdapter(step::AdapterId(9)).ok());
    EXPECT_TRUE(leading.SetAdapter(3, step::kNoAdapter).ok());
  }
  other.join();
  EXPECT_TRUE(end.ok()) << end.ToString();
  EXPECT_EQ(calls, (std::vector<std::string>{"set 3 1099511627783", "forget 9", "set 3 0",
                                             "1 steps"}));
}

// Rank 0 runs `lead` with a leading executor around its own; the others follow. Returns how those
// ended, and OK for rank 0.
template <typename Executor, typename Lead>
std::vector<Status> RunRanks(std::vector<Executor>& executors, const Lead& lead) {
  const auto count = static_cast<int32_t>(executors.size());
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.tensor = count}, .slot_bytes = 4096});
  std::vector<Status> ends(executors.size());
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, r))->groups();
      comm::Group* group = groups.at(comm::Axis::kTensor);
      Executor& executor = executors[static_cast<size_t>(r)];
      if (r > 0) {
        ends[static_cast<size_t>(r)] = FollowSteps(&executor, *group, kBounds);
        return;
      }
      LeadingExecutor leading(&executor, group, kBounds);
      lead(leading);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// Ranks of recorders.
struct Ranks {
  explicit Ranks(int32_t ranks) : recorders(static_cast<size_t>(ranks)) {}

  template <typename Lead>
  void Run(const Lead& lead) {
    ends = RunRanks(recorders, lead);
  }

  std::vector<Recorder> recorders;
  std::vector<Status> ends;
};

TEST(RankStepsTest, EveryRankRunsTheSameStepsSmallAndLarge) {
  Ranks ranks(3);
  ranks.Run([](LeadingExecutor& leading) {
    program::ExecutorOutput output;
    for (const auto& [first, second] : {std::pair(1, 1), {2000, 1}, {3, 700}, {1, 1}}) {
      ASSERT_TRUE(leading.Execute(Step(first, second).view(), &output).ok());
    }
  });
  Recorder expected;
  program::ExecutorOutput output;
  for (const auto& [first, second] : {std::pair(1, 1), {2000, 1}, {3, 700}, {1, 1}}) {
    ASSERT_TRUE(expected.Execute(Step(first, second).view(), &output).ok());
  }
  for (const Recorder& recorder : ranks.recorders) EXPECT_EQ(recorder.steps, expected.steps);
  for (const Status& end : ranks.ends) EXPECT_TRUE(end.ok()) << end.ToString();
}

TEST(RankStepsTest, AStepWithoutTokensReachesEveryRank) {
  Ranks ranks(2);
  ranks.Run([](LeadingExecutor& leading) {
    program::ExecutorOutput output;
    ASSERT_TRUE(leading.Execute(BatchBuilder({16, 48}, 150).view(), &output).ok());
    ASSERT_TRUE(leading.Execute(Step(1, 1).view(), &output).ok());
  });
  EXPECT_EQ(ranks.recorders[1].steps.size(), 2u);
  EXPECT_EQ(ranks.recorders[1].steps, ranks.recorders[0].steps);
}

TEST(RankStepsTest, EveryRankGetsEveryNumberOfTheStep) {
  Ranks ranks(2);
  ranks.Run([](LeadingExecutor& leading) {
    program::ExecutorOutput output;
    const BatchBuilder arrays = Step(1, 2);
    ops::StepBatch batch = arrays.view();
    batch.argmax_columns = 49152;
    std::vector<ops::KvArrays> tables(batch.kv.begin(), batch.kv.end());
    tables[1].num_common_blocks = 3;
    batch.kv = tables;
    ASSERT_TRUE(leading.Execute(batch, &output).ok());
  });
  ASSERT_EQ(ranks.recorders[1].steps.size(), 1u);
  EXPECT_EQ(ranks.recorders[1].steps, ranks.recorders[0].steps);
  EXPECT_NE(ranks.recorders[1].steps[0].find(" argmax_columns 49152"), std::string::npos);
  EXPECT_NE(ranks.recorders[1].steps[0].find(" num_common_blocks 3"), std::string::npos);
}

// Inputs of two types, the larger far beyond the first piece of a message, and an array that steps
// have only if the program declares it.
TEST(RankStepsTest, EveryRankGetsInputsAndPositionsOfSeveralDimensions) {
  std::vector<float> values(700 * 11);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7;
  std::vector<uint16_t> halves = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<int32_t> grid(703 * ops::kGridDims), rows(700);
  for (size_t i = 0; i < grid.size(); ++i) grid[i] = static_cast<int32_t>(5 * i % 77);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i) + 3;
  const TensorView inputs[] = {TensorView::Dense(halves.data(), DType::kBF16, {3, 3}),
                               TensorView::Dense(values.data(), DType::kF32, {700, 11})};
  Ranks ranks(3);
  ranks.Run([&](LeadingExecutor& leading) {
    program::ExecutorOutput output;
    const BatchBuilder arrays = Step(3, 700);
    ops::StepBatch batch = arrays.view();
    batch.grid_positions = grid.data();
    batch.num_media_rows = 700;
    batch.media_rows = rows.data();
    batch.inputs = inputs;
    ASSERT_TRUE(leading.Execute(batch, &output).ok());
    batch.num_media_rows = 0;
    TensorView none = inputs[1];
    none.shape[0] = 0;
    batch.inputs = {&none, 1};
    ASSERT_TRUE(leading.Execute(batch, &output).ok());
    ASSERT_TRUE(leading.Execute(Step(1, 1).view(), &output).ok());
  });
  const std::vector<std::string>& steps = ranks.recorders[0].steps;
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NE(steps[0].find(" bf16 3 3 0 0 "), std::string::npos);
  EXPECT_NE(steps[0].find(" grid_positions 0 5 10 15"), std::string::npos);
  EXPECT_EQ(steps[2].find("grid_positions"), std::string::npos);
  for (const Recorder& recorder : ranks.recorders) EXPECT_EQ(recorder.steps, steps);
}

TEST(RankStepsTest, InputsBeyondTheBoundsAreRefusedBeforeTheyAreSent) {
  std::vector<float> values(10001);
  const auto refused = [&](const TensorView& input) {
    Ranks ranks(2);
    std::string message;
    ranks.Run([&](LeadingExecutor& leading) {
      program::ExecutorOutput output;
      const BatchBuilder arrays = Step(1, 1);
      ops::StepBatch batch = arrays.view();
      batch.inputs = {&input, 1};
      message = leading.Execute(batch, &output).message();
      EXPECT_TRUE(leading.Execute(Step(1, 1).view(), &output).ok()) << "the group goes on";
    });
    EXPECT_EQ(ranks.recorders[1].steps.size(), 1u);
    return message;
  };
  for (const TensorView& input : {TensorView::Dense(values.data(), DType::kF32, {10001, 1}),
                                  TensorView::Dense(values.data(), DType::kF32, {1, 10001}),
                                  TensorView::Dense(values.data(), DType::kI32, {2, 1})}) {
    EXPECT_NE(refused(input).find("exceed this rank's 40000 bytes"), std::string::npos);
  }
}

// With two steps in flight, tokens of the second are rows of the first on every rank: rank 0 does
// not wait to tell them.
TEST(RankStepsTest, EveryRankReadsTheTokensThatItHasFoundItself) {
  const sampling::HashModel model({.vocab_size = 50});
  std::vector<ContextExecutor> ranks(3, ContextExecutor(&model, 16 * 16, 2));
  const std::vector<Status> ends = RunRanks(ranks, [](LeadingExecutor& leading) {
    ASSERT_EQ(leading.max_steps_in_flight(), 2);
    program::ExecutorOutput output;
    for (int32_t i = 0; i < 4; ++i) {
      BatchBuilder step(16, 4);
      for (int32_t r = 0; r < 2; ++r) {
        // Rows the other way round, so that each text continues with a token of the other.
        step.Add(r, i, {i == 0 ? 7 + r : program::TokenOfRow(1 - r)});
      }
      ops::StepBatch batch = step.view();
      batch.argmax_columns = 50;
      ASSERT_TRUE(leading.Enqueue(batch).ok());
      if (i == 0) continue;
      ASSERT_TRUE(leading.Collect(&output).ok());
    }
    ASSERT_TRUE(leading.Collect(&output).ok());
  });
  for (size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_TRUE(ends[r].ok()) << ends[r].ToString();
    EXPECT_EQ(ranks[r].token_ids, ranks[0].token_ids);
    EXPECT_EQ(ranks[r].num_tokens_of_rows, 6);
    EXPECT_EQ(ranks[r].num_overlapping_steps, 3) << "a follower collects when it has to";
  }
}

// Every rank draws the tokens for itself, so that its next step reads what rank 0 reads.
TEST(RankStepsTest, EveryRankDrawsTheSameTokens) {
  const sampling::HashModel model({.vocab_size = 50});
  std::vector<ContextExecutor> ranks(3, ContextExecutor(&model, 16 * 16, 2));
  std::vector<std::vector<int32_t>> drawn;
  const std::vector<Status> ends = RunRanks(ranks, [&](LeadingExecutor& leading) {
    ASSERT_TRUE(leading.samples());
    program::ExecutorOutput output;
    const auto collect = [&] {
      ASSERT_TRUE(leading.Collect(&output).ok());
      drawn.emplace_back();
      for (const ops::RowMaximum& found : output.maxima) drawn.back().push_back(found.column);
      EXPECT_EQ(output.scores.size(), 2u);
    };
    for (int32_t i = 0; i < 4; ++i) {
      BatchBuilder step(16, 4);
      for (int32_t r = 0; r < 3; ++r) {
        step.Add(r, i, {i == 0 ? 7 + r : program::TokenOfRow(r)});
      }
      ops::StepBatch batch = step.view();
      batch.argmax_columns = 50;
      ASSERT_TRUE(leading.Enqueue(batch).ok());
      std::vector<ops::RowDraw> draws(3);
      draws[0] = {.temperature = 2.0f, .min_p = 0.001f, .position = i};
      draws[2] = {.temperature = 1.0f, .top_p = 0.99f, .top_k = 30, .position = 100 + i};
      draws[2].SetSeed(~0ull - 3);
      std::vector<uint32_t> masks = {~0u, ~0u, 0x5a5a5a5au, 3u};
      draws[1].mask = 1;
      const std::vector<int32_t> cleared = i == 0 ? std::vector{6, 7} : std::vector<int32_t>{};
      const std::vector<ops::TokenCount> counts = {{7, ops::TokenOfInput(0), ops::kOneOutput},
                                                   {6, 20 + i, ops::kInPrompt}};
      const std::vector<ops::LogitBias> biases = {{.row = 2, .token_id = 9, .bias = 0.5f}};
      const std::vector<ops::RowPenalties> penalties = {
          {.row = 0, .slot = 7, .repetition = 3.0f, .presence = 1.0f},
          {.row = 2, .slot = 6, .repetition = 0.5f, .first_draft = 1, .num_drafts = 2}};
      const std::vector<ops::ScoredRow> scored = {{.row = 0}, {.row = 2, .num_top = 3}};
      ASSERT_TRUE(leading.Sample({draws, masks, cleared, counts, biases, penalties, scored}).ok());
      if (i > 0) collect();
    }
    collect();
  });
  ASSERT_EQ(drawn.size(), 4u);
  for (size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_TRUE(ends[r].ok()) << ends[r].ToString();
    EXPECT_EQ(ranks[r].token_ids, ranks[0].token_ids);
    EXPECT_EQ(ranks[r].num_drawn, 8);
    EXPECT_EQ(ranks[r].num_masked, 4);
    EXPECT_EQ(ranks[r].num_adjusted, 4 * 3);
    EXPECT_EQ(ranks[r].num_cleared, 2);
    EXPECT_EQ(ranks[r].num_scored, r == 0 ? 4 * 2 : 0) << "rank 0 alone reports them";
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(ranks[r].token_ids[3 + i], drawn[i / 3][i % 3]) << "as rank 0 has them";
    }
  }
}

TEST(RankStepsTest, DrawsForMoreRowsThanTheBoundsAreRefusedBeforeTheyAreSent) {
  Ranks ranks(2);
  ranks.Run([](LeadingExecutor& leading) {
    const std::vector<ops::RowDraw> draws(9);
    EXPECT_NE(leading.Sample({.rows = draws}).message().find("draws for 9 rows of logits exceed"),
              std::string::npos);
    const std::vector<ops::RowPenalties> penalties(9);
    const std::vector<ops::RowDraw> few(8);
    EXPECT_FALSE(leading.Sample({.rows = few, .penalties = penalties}).ok());
    program::ExecutorOutput output;
    EXPECT_TRUE(leading.Execute(Step(1, 1).view(), &output).ok()) << "the group goes on";
  });
  EXPECT_TRUE(ranks.ends[1].ok());
}

TEST(RankStepsTest, AFollowerThatCannotDrawEndsTheGroup) {
  Ranks ranks(2);
  ranks.Run([](LeadingExecutor& leading) {
    EXPECT_EQ(leading.Sample({.rows = std::vector<ops::RowDraw>(1)}).code(),
              StatusCode::kUnimplemented);
  });
  EXPECT_EQ(ranks.ends[1].message(), "this executor draws no tokens");
}

TEST(RankStepsTest, AFollowerThatFailsAStepEndsTheGroup) {
  Ranks ranks(2);
  ranks.recorders[1].failure = Internal("out of order");
  ranks.Run([](LeadingExecutor& leading) {
    program::ExecutorOutput output;
    Status status;
    for (int step = 0; step < 4 && status.ok(); ++step) {
      status = leading.Execute(Step(1, 1).view(), &output);
    }
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  });
  EXPECT_EQ(ranks.ends[1].message(), "out of order");
}

TEST(RankStepsTest, AFollowerTellsWhyItsStepWasLostIfTheGroupHasEnded) {
  const auto segment = *comm::SharedSegment::Create({.topology = {.tensor = 2}});
  Recorder recorder;
  recorder.lost = Internal("no memory");
  Status end;
  std::thread other([&] {
    const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, 1))->groups();
    end = FollowSteps(&recorder, *groups.at(comm::Axis::kTensor), kBounds);
  });
  {
    const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, 0))->groups();
    comm::Group& group = *groups.at(comm::Axis::kTensor);
    Recorder executor;
    LeadingExecutor leading(&executor, &group, kBounds);
    EXPECT_TRUE(leading.Enqueue(Step(1, 1).view()).ok());
    EXPECT_TRUE(leading.ForgetAdapter(step::AdapterId(1)).ok());  // an error there
  }
  other.join();
  EXPECT_EQ(end.message(), "no memory");
}

TEST(RankStepsTest, AStepBeyondTheBoundsIsRefusedBeforeItIsSent) {
  Ranks ranks(2);
  ranks.Run([](LeadingExecutor& leading) {
    program::ExecutorOutput output;
    BatchBuilder arrays(16, 400);
    arrays.Add(0, 0, Tokens(4097));
    const Status status = leading.Execute(arrays.view(), &output);
    EXPECT_NE(status.message().find("a step of 4097 tokens exceeds"), std::string::npos);
    EXPECT_TRUE(leading.Execute(Step(1, 1).view(), &output).ok()) << "the group goes on";
  });
  EXPECT_EQ(ranks.recorders[1].steps.size(), 1u);
  EXPECT_TRUE(ranks.ends[1].ok());
}

TEST(RankStepsTest, AFollowerEndsWhenTheLeaderIsGone) {
  const auto segment = *comm::SharedSegment::Create({.topology = {.tensor = 2}});
  { const auto leader = *comm::SharedMemoryWorld::Join(segment, 0); }
  const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, 1))->groups();
  Recorder recorder;
  EXPECT_EQ(FollowSteps(&recorder, *groups.at(comm::Axis::kTensor), kBounds).code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pagemill::runner
