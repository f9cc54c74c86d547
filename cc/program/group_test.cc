// A program divided among ranks: weights that are columns of wider matrices, and collectives.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/comm/communicator.h"
#include "cc/program/native_executor.h"
#include "cc/program/testing/batch_builder.h"

namespace pagemill::program {
namespace {

constexpr int64_t kVocab = 11, kHidden = 8, kInner = 12;

// Small whole numbers: sums are exact in any order, so that divided and whole agree to the bit.
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
  return "pagemill-program 2\nfile 0 @\nweight embed f32 " + number(kVocab) + "," +
         number(kHidden) + " 0 0\nweight up f32 " + number(inner) + "," + number(kHidden) + " 0 " +
         number(up + 4 * begin * kHidden) + "\nweight down f32 " + number(kHidden) + "," +
         number(inner) + " 0 " + number(down + 4 * begin) +
         (ranks > 1 ? " " + number(4 * kInner) : "") + "\nweight head f32 " + number(rows) + "," +
         number(kHidden) + " 0 " + number(head + 4 * first * kHidden) +
         "\ninput token_ids i32 tokens\ninput logits_rows i32 logits_rows\n" + "value x f32 tokens," + number(kHidden) +
         "\nvalue h f32 tokens," + number(inner) + "\nvalue d f32 tokens," + number(kHidden) +
         "\nvalue y f32 tokens," + number(kHidden) + "\nvalue s f32 logits_rows," + number(kHidden) +
         "\nvalue p f32 logits_rows," + number(rows) + "\nvalue logits f32 logits_rows," + number(kVocab) +
         "\nop embedding token_ids,embed -> x\nop linear x,up -> h\n" +
         "op linear h,down -> d\nop all_reduce d -> y" + group +
         "\nop select_rows y,logits_rows -> s\nop linear s,head -> p\nop all_gather p -> logits" +
         group + " rank=" + number(rank) + "\noutput logits logits\n" +
         Constants(2 * kVocab * kHidden + 2 * kHidden * kInner);
}

StatusOr<std::unique_ptr<NativeExecutor>> MakeExecutor(const std::string& text,
                                                       std::shared_ptr<comm::Communicator> group) {
  PM_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  EXPECT_EQ(program.ToText(), text);
  const Target target = {.ops = ops::CpuOps(),
                         .capabilities = device::DetectCapabilities(),
                         .group = std::move(group)};
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 8;
  return NativeExecutor::Create(std::move(program), target, options);
}

StatusOr<std::vector<float>> RunSteps(NativeExecutor& executor) {
  testing::BatchBuilder arrays(std::vector<int32_t>{}, 0);
  arrays.Add(0, 0, {1, 5, 9});
  arrays.Add(1, 0, {10});
  ExecutorOutput output;
  PM_RETURN_IF_ERROR(executor.Execute(arrays.view(), &output));
  const auto* logits = output.logits().Data<const float>();
  return std::vector<float>(logits, logits + 2 * kVocab);
}

// The same step's maxima of the first `columns` logits.
StatusOr<std::vector<ops::RowMaximum>> RunGreedySteps(NativeExecutor& executor, int32_t columns) {
  testing::BatchBuilder arrays(std::vector<int32_t>{}, 0);
  arrays.Add(0, 0, {1, 5, 9});
  arrays.Add(1, 0, {10});
  ops::StepBatch batch = arrays.view();
  batch.argmax_columns = columns;
  ExecutorOutput output;
  PM_RETURN_IF_ERROR(executor.Execute(batch, &output));
  return std::vector<ops::RowMaximum>(output.maxima.begin(), output.maxima.end());
}

std::vector<float> Whole() {
  const auto executor = MakeExecutor(TextOfRank(0, 1), nullptr);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *RunSteps(**executor);
}

TEST(GroupTest, RanksOfADividedProgramComputeWhatTheWholeOneDoes) {
  const std::vector<float> expected = Whole();
  for (const int32_t ranks : {2, 3, 4}) {
    const auto segment = *comm::SharedSegment::Create({.num_ranks = ranks});
    std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        const std::shared_ptr<comm::Communicator> group = *comm::Communicator::Join(segment, r);
        const auto executor = MakeExecutor(TextOfRank(r, ranks), group);
        ASSERT_TRUE(executor.ok()) << executor.status().ToString();
        for (int step = 0; step < 3; ++step)
          results[static_cast<size_t>(r)] = *RunSteps(**executor);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<float>& result : results) EXPECT_EQ(result, expected);
  }
}

TEST(GroupTest, RanksGatherTheMaximaOfGreedySteps) {
  const std::vector<float> logits = Whole();
  for (const int32_t ranks : {2, 3, 4}) {
    const auto segment = *comm::SharedSegment::Create({.num_ranks = ranks});
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        const std::shared_ptr<comm::Communicator> group = *comm::Communicator::Join(segment, r);
        const auto executor = *MakeExecutor(TextOfRank(r, ranks), group);
        // All columns; without the last ones, which are padding; so few that some ranks have none.
        for (const int32_t columns : {int32_t{kVocab}, 7, 2, 1}) {
          const auto maxima = *RunGreedySteps(*executor, columns);
          ASSERT_EQ(maxima.size(), 2u);
          for (size_t row = 0; row < 2; ++row) {
            const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * kVocab);
            const auto largest = std::max_element(begin, begin + columns);
            EXPECT_EQ(maxima[row].column, largest - begin) << columns << " of rank " << r;
            EXPECT_EQ(maxima[row].logit, *largest);
          }
        }
        EXPECT_EQ(*RunSteps(*executor), logits) << "and logits again";
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(GroupTest, AStepFailsWhenThePeerHasLeft) {
  const auto segment = *comm::SharedSegment::Create({.num_ranks = 2});
  const std::shared_ptr<comm::Communicator> group = *comm::Communicator::Join(segment, 0);
  { const auto peer = *comm::Communicator::Join(segment, 1); }
  const auto executor = *MakeExecutor(TextOfRank(0, 2), group);
  const auto result = RunSteps(*executor);
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(result.status().message().find("rank 1 of 2"), std::string::npos);
}

TEST(GroupTest, AProgramForAnotherGroupIsRefused) {
  const auto alone = MakeExecutor(TextOfRank(1, 2), nullptr);
  EXPECT_EQ(alone.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(alone.status().message().find("is for 2 ranks, this executor is rank 0 of 1"),
            std::string::npos)
      << alone.status().message();
  const auto segment = *comm::SharedSegment::Create({.num_ranks = 2});
  const std::shared_ptr<comm::Communicator> group = *comm::Communicator::Join(segment, 0);
  const auto other = MakeExecutor(TextOfRank(1, 2), group);
  EXPECT_NE(other.status().message().find("is for another rank"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::program
