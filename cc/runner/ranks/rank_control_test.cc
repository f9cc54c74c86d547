#include "cc/runner/ranks/rank_control.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/engine/runner_control.h"
#include "cc/program/executor.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/runner/ranks/rank_steps.h"
#include "cc/runner/ranks/step_message.h"

namespace pagemill::runner {
namespace {

using engine::KvMemory;
using engine::NewWeights;
using engine::WeightSources;

constexpr StepBounds kBounds = {
    .max_num_tokens = 16, .max_num_seqs = 8, .max_num_logits_rows = 8, .num_blocks = 400};
const WeightSources kSources = {
    {"model", "of rank 0"}, {"encoder", "of it"}, {"1/model", "of rank 1"}};

// Of programs without weights. Says after how many collected steps each call came.
class Control final : public engine::RunnerControl {
 public:
  explicit Control(const int32_t* collected) : collected_(collected) {}

  Status Sleep(KvMemory kv) override {
    steps_before.push_back(*collected_);
    PAGEMILL_RETURN_IF_ERROR(std::exchange(next, OkStatus()));
    asleep = kv;
    return OkStatus();
  }
  Status Wake() override {
    steps_before.push_back(*collected_);
    PAGEMILL_RETURN_IF_ERROR(std::exchange(next, OkStatus()));
    asleep.reset();
    return OkStatus();
  }
  Status UpdateWeights(const WeightSources& other, NewWeights over,
                       const std::function<Status()>& commit) override {
    steps_before.push_back(*collected_);
    PAGEMILL_RETURN_IF_ERROR(std::exchange(next, OkStatus()));
    PAGEMILL_RETURN_IF_ERROR(commit());
    sources = other;
    where = over;
    if (!device.ok()) asleep = KvMemory::kKeep;
    return device;
  }

  Status next;    // what the next call returns, if it is not OK
  Status device;  // when new weights are taken
  std::optional<KvMemory> asleep;
  WeightSources sources;
  NewWeights where = NewWeights::kBeside;
  std::vector<int32_t> steps_before;

 private:
  const int32_t* const collected_;
};

// Takes two steps at once.
class Steps final : public program::Executor {
 public:
  Steps() : Executor(/*max_steps_in_flight=*/2, /*samples=*/false, /*pipelined=*/false) {}
  Status Enqueue(const ops::StepBatch&) override { return OkStatus(); }
  Status Collect(program::ExecutorOutput*) override {
    ++collected;
    return OkStatus();
  }

  int32_t collected = 0;
};

struct Rank {
  Steps steps;
  std::unique_ptr<Control> control = std::make_unique<Control>(&steps.collected);
  Status end;  // of a rank that follows
};

// What rank 0 does with its group.
struct Leader {
  LeadingExecutor steps;
  LeadingControl control;
  comm::Group& group;

  void Step() {
    program::testing::BatchBuilder batch(16, 8);
    batch.Add(0, 0, {1});
    program::ExecutorOutput output;
    EXPECT_TRUE(steps.Execute(batch.view(), &output).ok());
  }
};

// Takes rank 0's calls to the control that a test looks at.
class Borrowed final : public engine::RunnerControl {
 public:
  explicit Borrowed(engine::RunnerControl* control) : control_(control) {}
  Status Sleep(KvMemory kv) override { return control_->Sleep(kv); }
  Status Wake() override { return control_->Wake(); }
  Status UpdateWeights(const WeightSources& sources, NewWeights where,
                       const std::function<Status()>& commit) override {
    return control_->UpdateWeights(sources, where, commit);
  }

 private:
  engine::RunnerControl* const control_;
};

void RunRanks(std::vector<Rank>& ranks, const std::function<void(Leader&)>& lead) {
  const auto count = static_cast<int32_t>(ranks.size());
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.tensor = count}, .slot_bytes = 4096});
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, r))->groups();
      comm::Group* group = groups.at(comm::Axis::kTensor);
      Rank& rank = ranks[static_cast<size_t>(r)];
      if (r > 0) {
        rank.end = FollowSteps(&rank.steps, *group, kBounds, {}, rank.control.get());
        return;
      }
      Leader leader{.steps = {&rank.steps, group, kBounds},
                    .control = {group, std::make_unique<Borrowed>(rank.control.get())},
                    .group = *group};
      lead(leader);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Status Update(Leader& leader, NewWeights where = NewWeights::kBeside, Status commit = {}) {
  return leader.control.UpdateWeights(kSources, where, [&commit] { return commit; });
}

TEST(RankControlTest, AllRanksSleepAndWakeBetweenTheSameSteps) {
  std::vector<Rank> ranks(3);
  RunRanks(ranks, [&](Leader& leader) {
    leader.Step();
    leader.Step();
    EXPECT_TRUE(leader.control.Sleep(KvMemory::kFree).ok());
    for (const Rank& rank : ranks) EXPECT_EQ(rank.control->asleep, KvMemory::kFree);
    EXPECT_TRUE(leader.control.Wake().ok());
    leader.Step();
    EXPECT_TRUE(leader.control.Sleep(KvMemory::kKeep).ok());
    for (const Rank& rank : ranks) EXPECT_EQ(rank.control->asleep, KvMemory::kKeep);
    EXPECT_TRUE(leader.control.Wake().ok());
    leader.Step();
  });
  for (const Rank& rank : ranks) {
    EXPECT_TRUE(rank.end.ok()) << rank.end.ToString();
    EXPECT_FALSE(rank.control->asleep);
    EXPECT_EQ(rank.control->steps_before, (std::vector<int32_t>{2, 2, 3, 3}));
  }
}

TEST(RankControlTest, ARankThatCannotSleepKeepsAllAwake) {
  for (size_t failing = 0; failing < 3; ++failing) {
    std::vector<Rank> ranks(3);
    RunRanks(ranks, [&](Leader& leader) {
      ranks[failing].control->next = Internal("busy");
      const Status status = leader.control.Sleep(KvMemory::kFree);
      EXPECT_EQ(status.code(), StatusCode::kInternal);
      EXPECT_EQ(status.message(),
                failing == 0 ? "busy" : "rank " + std::to_string(failing) + " of 3: busy");
      leader.Step();
    });
    for (const Rank& rank : ranks) {
      EXPECT_FALSE(rank.control->asleep);
      EXPECT_TRUE(rank.end.ok()) << rank.end.ToString();
    }
  }
}

TEST(RankControlTest, ARankThatCannotWakeLetsAllSleepAndWakeLater) {
  std::vector<Rank> ranks(2);
  RunRanks(ranks, [&](Leader& leader) {
    EXPECT_TRUE(leader.control.Sleep(KvMemory::kFree).ok());
    EXPECT_TRUE(leader.control.Sleep(KvMemory::kKeep).ok()) << "its KV stays freed";
    ranks[1].control->next = ResourceExhausted("no memory");
    EXPECT_EQ(leader.control.Wake().message(), "rank 1 of 2: no memory");
    EXPECT_EQ(ranks[0].control->asleep, KvMemory::kFree);
    EXPECT_TRUE(ranks[1].control->asleep);
    EXPECT_TRUE(leader.control.Wake().ok());
    leader.Step();
  });
  for (const Rank& rank : ranks) EXPECT_FALSE(rank.control->asleep);
  EXPECT_TRUE(ranks[1].end.ok());
}

// Says that it cannot sleep, and then that it cannot wake.
TEST(RankControlTest, ARankThatCannotReturnEndsTheGroup) {
  std::vector<Rank> ranks(3);
  RunRanks(ranks, [&](Leader& leader) {
    EXPECT_TRUE(leader.control.Sleep(KvMemory::kFree).ok());
    ranks[1].control->next = ResourceExhausted("no memory");
    class Stuck final : public engine::RunnerControl {
     public:
      Status Sleep(KvMemory) override { return Internal("stuck"); }
      Status Wake() override { return OkStatus(); }
      Status UpdateWeights(const WeightSources&, NewWeights,
                           const std::function<Status()>&) override {
        return OkStatus();
      }
    };
    LeadingControl stuck(&leader.group, std::make_unique<Stuck>());
    EXPECT_EQ(stuck.Wake().message(), "stuck");
    EXPECT_FALSE(leader.group.status().ok());
    EXPECT_FALSE(leader.control.Wake().ok()) << "and no call waits";
  });
  EXPECT_FALSE(ranks[1].end.ok());
  EXPECT_FALSE(ranks[2].end.ok());
}

TEST(RankControlTest, EachRankGetsItsOwnWeights) {
  std::vector<Rank> ranks(3);
  RunRanks(ranks, [&](Leader& leader) {
    leader.Step();
    const Status status = Update(leader, NewWeights::kOver);
    EXPECT_TRUE(status.ok()) << status.ToString();
    leader.Step();
  });
  const std::vector<WeightSources> expected = {
      {{"model", "of rank 0"}, {"encoder", "of it"}}, {{"model", "of rank 1"}}, {}};
  for (size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(ranks[r].control->sources, expected[r]);
    EXPECT_EQ(ranks[r].control->where, NewWeights::kOver);
    EXPECT_EQ(ranks[r].control->steps_before, std::vector<int32_t>{1});
    EXPECT_TRUE(ranks[r].end.ok()) << ranks[r].end.ToString();
  }
}

TEST(RankControlTest, WeightsThatDoNotFitOneRankAreTakenByNone) {
  for (size_t failing = 0; failing < 3; ++failing) {
    std::vector<Rank> ranks(3);
    bool committed = false;
    RunRanks(ranks, [&](Leader& leader) {
      ranks[failing].control->next = InvalidArgument("tensor a");
      const Status status =
          leader.control.UpdateWeights(kSources, NewWeights::kBeside, [&committed] {
            committed = true;
            return OkStatus();
          });
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      leader.Step();
    });
    EXPECT_FALSE(committed) << "before all can take them";
    for (const Rank& rank : ranks) {
      EXPECT_TRUE(rank.control->sources.empty());
      EXPECT_TRUE(rank.end.ok()) << rank.end.ToString();
    }
  }
}

TEST(RankControlTest, WeightsThatTheCallerDoesNotCommitAreTakenByNone) {
  std::vector<Rank> ranks(2);
  RunRanks(ranks, [&](Leader& leader) {
    EXPECT_EQ(Update(leader, NewWeights::kBeside, FailedPrecondition("kept")).message(), "kept");
    leader.Step();
    EXPECT_TRUE(Update(leader).ok());
  });
  EXPECT_EQ(ranks[1].control->sources, (WeightSources{{"model", "of rank 1"}}));
  EXPECT_TRUE(ranks[1].end.ok());
}

TEST(RankControlTest, ADeviceThatFailsLetsAllSleep) {
  std::vector<Rank> ranks(2);
  RunRanks(ranks, [&](Leader& leader) {
    ranks[1].control->device = Internal("device");
    EXPECT_EQ(Update(leader).message(), "rank 1 of 2: device");
    EXPECT_TRUE(ranks[0].control->asleep);
    EXPECT_TRUE(leader.control.Wake().ok());
    leader.Step();
  });
  EXPECT_TRUE(ranks[1].end.ok());
}

TEST(RankControlTest, NamesOfNoRankAreRefusedBeforeTheyAreSent) {
  std::vector<Rank> ranks(2);
  RunRanks(ranks, [&](Leader& leader) {
    for (const char* name :
         {"2/model", "-1/model", "/model", "1x/model", "99999999999999999999/m"}) {
      const Status status =
          leader.control.UpdateWeights({{name, "text"}}, NewWeights::kBeside, OkStatus);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    }
    const WeightSources zero = {{"model", std::string("a\0b", 3)}};
    EXPECT_FALSE(leader.control.UpdateWeights(zero, NewWeights::kBeside, OkStatus).ok());
    leader.Step();
  });
  EXPECT_TRUE(ranks[1].control->steps_before.empty());
  EXPECT_TRUE(ranks[1].end.ok());
}

TEST(RankControlTest, ALongMessageIsCut) {
  std::vector<Rank> ranks(2);
  RunRanks(ranks, [&](Leader& leader) {
    ranks[1].control->next = Internal(std::string(2000, 'x'));
    const Status status = leader.control.Sleep(KvMemory::kKeep);
    EXPECT_EQ(status.message(), "rank 1 of 2: " + std::string(508, 'x'));
    const std::string euro = "\u20AC";  // 3 bytes, so that the 508th is within a character
    std::string text = "xx";
    while (text.size() < 2000) text += euro;
    ranks[1].control->next = Internal(text);
    EXPECT_EQ(leader.control.Sleep(KvMemory::kKeep).message(),
              "rank 1 of 2: " + text.substr(0, 506));
    ranks[0].control->next = Internal(text);
    EXPECT_EQ(leader.control.Sleep(KvMemory::kKeep).message(), text) << "that of rank 0 is here";
  });
}

TEST(RankControlTest, ACallOfNoKnownKindEndsTheGroup) {
  std::vector<Rank> ranks(2);
  RunRanks(ranks, [&](Leader& leader) {
    std::vector<int32_t> message(kFirstPiece);
    message[0] = static_cast<int32_t>(MessageKind::kControl);
    message[1] = 99;
    const auto bytes = std::as_writable_bytes(std::span(message));
    EXPECT_TRUE(leader.group.Broadcast(bytes, /*root=*/0).ok());
    EXPECT_TRUE(leader.group.Broadcast({}, /*root=*/0).ok());
    EXPECT_EQ(leader.control.Wake().code(), StatusCode::kUnavailable);
  });
  EXPECT_NE(ranks[1].end.message().find("known kind"), std::string::npos);
}

TEST(RankControlTest, ARankWithoutControlEndsTheGroup) {
  std::vector<Rank> ranks(2);
  ranks[1].control.reset();
  RunRanks(ranks, [&](Leader& leader) {
    EXPECT_EQ(leader.control.Sleep(KvMemory::kKeep).code(), StatusCode::kUnavailable);
  });
  EXPECT_NE(ranks[1].end.message().find("weights stay"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::runner
