// A program partitioned among ranks: weights that are columns of wider matrices, and collectives.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/comm/testing/fake_group.h"
#include "cc/program/native_executor.h"
#include "cc/program/testing/batch_builder.h"

namespace pagemill::program {
namespace {

constexpr int64_t kVocab = 11, kHidden = 8, kInner = 12;

// Small whole numbers: sums are exact in any order, so partitioned and whole results are
// bit-identical.
std::string Constants(int64_t count) {
  std::minstd_rand random(7);
  std::string hex;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(random() % 9) - 4.0f);
    for (int byte = 0; byte < 4; ++byte) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[bits >> (8 * byte + 4) & 15];
      hex += kDigits[bits >> (8 * byte) & 15];
    }
  }
  return "constants " + std::to_string(4 * count) + "\n" + hex + "\n";
}

// embedding -> up (rows of it) -> down (columns of it) -> all_reduce -> head (rows of it) ->
// all_gather.
std::string TextOfRank(int64_t rank, int64_t ranks) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  const int64_t inner = kInner / ranks, begin = rank * inner;
  const int64_t first = kVocab * rank / ranks, rows = kVocab * (rank + 1) / ranks - first;
  const int64_t up = 4 * kVocab * kHidden, down = up + 4 * kInner * kHidden;
  const int64_t head = down + 4 * kHidden * kInner;
  const std::string group = " ranks=" + number(ranks);
  return "pagemill-program 3\nfile 0 @\nweight embed f32 " + number(kVocab) + "," +
         number(kHidden) + " 0 0\nweight up f32 " + number(inner) + "," + number(kHidden) + " 0 " +
         number(up + 4 * begin * kHidden) + "\nweight down f32 " + number(kHidden) + "," +
         number(inner) + " 0 " + number(down + 4 * begin) +
         (ranks > 1 ? " " + number(4 * kInner) : "") + "\nweight head f32 " + number(rows) + "," +
         number(kHidden) + " 0 " + number(head + 4 * first * kHidden) +
         "\ninput token_ids i32 tokens\ninput logits_rows i32 logits_rows\n" +
         "value x f32 tokens," + number(kHidden) + "\nvalue h f32 tokens," + number(inner) +
         "\nvalue d f32 tokens," + number(kHidden) + "\nvalue y f32 tokens," + number(kHidden) +
         "\nvalue s f32 logits_rows," + number(kHidden) + "\nvalue p f32 logits_rows," +
         number(rows) + "\nvalue logits f32 logits_rows," + number(kVocab) +
         "\nop embedding token_ids,embed -> x\nop linear x,up -> h\n" +
         "op linear h,down -> d\nop all_reduce d -> y" + group +
         "\nop select_rows y,logits_rows -> s\nop linear s,head -> p\nop all_gather p -> logits" +
         group + " rank=" + number(rank) + "\noutput logits logits\n" +
         Constants(2 * kVocab * kHidden + 2 * kHidden * kInner);
}

StatusOr<std::unique_ptr<NativeExecutor>> MakeExecutor(const std::string& text,
                                                       comm::Groups groups) {
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  EXPECT_EQ(program.ToText(), text);
  const Target target = {.ops = ops::CpuOps(),
                         .capabilities = device::DetectCapabilities(),
                         .groups = std::move(groups)};
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 8;
  return NativeExecutor::Create(std::move(program), target, options);
}

StatusOr<std::vector<float>> RunStep(NativeExecutor& executor, const testing::BatchBuilder& step) {
  ExecutorOutput output;
  const ops::StepBatch batch = step.view();
  PAGEMILL_RETURN_IF_ERROR(executor.Execute(batch, &output));
  const auto* logits = output.logits().Data<const float>();
  EXPECT_EQ(output.logits().shape[0], batch.num_logits_rows);
  return std::vector<float>(logits, logits + batch.num_logits_rows * kVocab);
}

testing::BatchBuilder EmptyStep() { return testing::BatchBuilder(std::vector<int32_t>{}, 0); }

testing::BatchBuilder TwoRequests() {
  testing::BatchBuilder step = EmptyStep();
  step.Add(0, 0, {1, 5, 9});
  step.Add(1, 0, {10});
  return step;
}

StatusOr<std::vector<float>> RunSteps(NativeExecutor& executor) {
  return RunStep(executor, TwoRequests());
}

// The maxima of the first `columns` logits of the same step.
StatusOr<std::vector<ops::RowMaximum>> RunGreedySteps(NativeExecutor& executor, int32_t columns) {
  testing::BatchBuilder arrays(std::vector<int32_t>{}, 0);
  arrays.Add(0, 0, {1, 5, 9});
  arrays.Add(1, 0, {10});
  ops::StepBatch batch = arrays.view();
  batch.argmax_columns = columns;
  ExecutorOutput output;
  PAGEMILL_RETURN_IF_ERROR(executor.Execute(batch, &output));
  return std::vector<ops::RowMaximum>(output.maxima.begin(), output.maxima.end());
}

std::vector<float> Whole() {
  const auto executor = MakeExecutor(TextOfRank(0, 1), {});
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *RunSteps(**executor);
}

// Runs `body` on one thread per rank of `topology`, with the rank's part of the program. No rank
// leaves before all have run it.
void RunRanks(const comm::Topology& topology,
              const std::function<void(NativeExecutor&, comm::SharedMemoryWorld&)>& body) {
  const auto segment = *comm::SharedSegment::Create({.topology = topology});
  std::vector<std::shared_ptr<comm::SharedMemoryWorld>> worlds;
  for (int32_t r = 0; r < topology.num_ranks(); ++r) {
    worlds.push_back(*comm::SharedMemoryWorld::Join(segment, r));
  }
  std::vector<std::thread> threads;
  for (const auto& world : worlds) {
    threads.emplace_back([&body, world = world.get()] {
      const comm::Groups groups = world->groups();
      const comm::Group& tensor = *groups.at(comm::Axis::kTensor);
      const auto executor = MakeExecutor(TextOfRank(tensor.rank(), tensor.num_ranks()), groups);
      EXPECT_TRUE(executor.ok()) << executor.status().ToString();
      if (executor.ok()) body(**executor, *world);
      if (::testing::Test::HasFailure()) world->Leave();  // releases its peers
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GroupTest, RanksOfADividedProgramComputeWhatTheWholeOneDoes) {
  const std::vector<float> expected = Whole();
  for (const int32_t ranks : {2, 3, 4}) {
    RunRanks({.tensor = ranks}, [&](NativeExecutor& executor, comm::SharedMemoryWorld&) {
      for (int step = 0; step < 3; ++step) EXPECT_EQ(*RunSteps(executor), expected);
    });
  }
}

TEST(GroupTest, RanksGatherTheMaximaOfGreedySteps) {
  const std::vector<float> logits = Whole();
  for (const int32_t ranks : {2, 3, 4}) {
    RunRanks({.tensor = ranks}, [&](NativeExecutor& executor, comm::SharedMemoryWorld& world) {
      // All columns; without the last ones, which are padding; so few that some ranks have none.
      for (const int32_t columns : {int32_t{kVocab}, 7, 2, 1}) {
        const auto maxima = *RunGreedySteps(executor, columns);
        ASSERT_EQ(maxima.size(), 2u);
        for (size_t row = 0; row < 2; ++row) {
          const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * kVocab);
          const auto largest = std::max_element(begin, begin + columns);
          EXPECT_EQ(maxima[row].column, largest - begin) << columns << " of rank " << world.rank();
          EXPECT_EQ(maxima[row].logit, *largest);
        }
      }
      EXPECT_EQ(*RunSteps(executor), logits) << "and logits again";
    });
  }
}

// A step without tokens runs the program's collectives, of 0 rows.
TEST(GroupTest, AnEmptyBatchIsAStep) {
  const std::vector<float> expected = Whole();
  RunRanks({.tensor = 2}, [&](NativeExecutor& executor, comm::SharedMemoryWorld&) {
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(*RunStep(executor, EmptyStep()), std::vector<float>());
      EXPECT_EQ(*RunSteps(executor), expected);
      const testing::BatchBuilder empty = EmptyStep();
      ops::StepBatch greedy = empty.view();
      greedy.argmax_columns = kVocab;
      ExecutorOutput output;
      EXPECT_TRUE(executor.Execute(greedy, &output).ok());
      EXPECT_TRUE(output.maxima.empty());
    }
  });
  const auto tensor = std::make_shared<comm::testing::FakeGroup>(0, 2);
  comm::Groups groups;
  groups.Set(comm::Axis::kTensor, tensor);
  const auto executor = MakeExecutor(TextOfRank(0, 2), groups);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_TRUE(RunStep(**executor, EmptyStep()).ok());
  ASSERT_EQ(tensor->calls().size(), 2u);
  EXPECT_EQ(tensor->calls()[0].kind, comm::Collective::Kind::kAllReduce);
  EXPECT_EQ(tensor->calls()[0].count, 0);
  EXPECT_EQ(tensor->calls()[1].kind, comm::Collective::Kind::kAllGather);
  EXPECT_EQ(tensor->calls()[1].count, 0);
}

// Two replicas of two ranks each, which join results after each step, as experts partitioned among
// all of them do: one or both of the replicas have nothing to run.
TEST(GroupTest, AnIdleDataParallelRankHangsNoOther) {
  const std::vector<float> logits = Whole();
  RunRanks({.data = 2, .tensor = 2}, [&](NativeExecutor& executor, comm::SharedMemoryWorld& world) {
    const comm::Groups groups = world.groups();
    comm::Group& data = *groups.at(comm::Axis::kData);
    for (int step = 0; step < 8; ++step) {
      const auto is_busy = [step](int32_t replica) { return (step >> replica & 1) != 0; };
      const auto mine = *RunStep(executor, is_busy(data.rank()) ? TwoRequests() : EmptyStep());
      std::vector<int64_t> bytes;
      std::vector<float> expected;
      for (int32_t replica = 0; replica < 2; ++replica) {
        bytes.push_back(is_busy(replica) ? static_cast<int64_t>(logits.size() * sizeof(float)) : 0);
        if (is_busy(replica)) expected.insert(expected.end(), logits.begin(), logits.end());
      }
      std::vector<float> joined(expected.size());
      ASSERT_TRUE(data.AllGather(mine.data(), joined.data(), 1, bytes).ok());
      EXPECT_EQ(joined, expected) << "step " << step << " on rank " << world.rank();
    }
  });
}

TEST(GroupTest, AStepFailsWhenThePeerHasLeft) {
  const auto segment = *comm::SharedSegment::Create({.topology = {.tensor = 2}});
  const auto world = *comm::SharedMemoryWorld::Join(segment, 0);
  { const auto peer = *comm::SharedMemoryWorld::Join(segment, 1); }
  const auto executor = *MakeExecutor(TextOfRank(0, 2), world->groups());
  const auto result = RunSteps(*executor);
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(result.status().message().find("rank 1 of 2"), std::string::npos);
}

TEST(GroupTest, AProgramForAnotherGroupIsRefused) {
  const auto message = [](const comm::Groups& groups) {
    return MakeExecutor(TextOfRank(1, 2), groups).status().message();
  };
  EXPECT_NE(
      message({}).find("all_reduce is for 2 ranks along axis 0, this executor is rank 0 of 1"),
      std::string::npos)
      << message({});
  comm::Groups groups;
  groups.Set(comm::Axis::kData, std::make_shared<comm::testing::FakeGroup>(1, 2));
  EXPECT_EQ(message(groups), message({})) << "a group of another axis";
  groups.Set(comm::Axis::kTensor, std::make_shared<comm::testing::FakeGroup>(0, 2));
  EXPECT_NE(message(groups).find("all_gather is for rank 1 along axis 0, this executor is rank 0"),
            std::string::npos)
      << message(groups);
}

}  // namespace
}  // namespace pagemill::program
