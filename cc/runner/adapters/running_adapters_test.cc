#include "cc/runner/adapters/running_adapters.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/program.h"
#include "cc/runner/adapters/adapter_store.h"

namespace pagemill::runner {
namespace {

using step::AdapterId;
using step::RequestIndex;

std::shared_ptr<const program::AdapterWeights> MakeWeights() {
  const program::Program program = *program::Program::Parse(
      "pagemill-program 3\ninput x act tokens,4\nvalue y act tokens,4\nop scale x -> y by=1\n"
      "output y y\n");
  return *program::AdapterWeights::Make(program, {});
}

class RunningAdaptersTest : public testing::Test {
 protected:
  RunningAdaptersTest() {
    engine::RunnerLimits limits;
    limits.max_num_seqs = 4;
    limits.max_adapters = 2;
    slots_ = std::make_unique<RunningAdapters>(
        AdapterCalls{.set =
                         [this](int32_t slot, AdapterId adapter, const AdapterParts& parts) {
                           EXPECT_EQ(adapter == step::kNoAdapter, parts.empty());
                           held_[slot] = parts.empty() ? nullptr : parts[0];
                           return OkStatus();
                         },
                     .forget =
                         [this](AdapterId adapter) {
                           forgotten_.push_back(adapter);
                           return OkStatus();
                         }},
        &store_, limits);
    for (uint64_t id : {7, 8, 9}) {
      EXPECT_TRUE(store_.Add(AdapterId(id), {MakeWeights()}).ok());
    }
  }

  struct Entry {
    int32_t index;
    int32_t num_tokens;
    int64_t adapter = -1;  // >= 0: the request begins
  };
  // The array of the step.
  std::vector<int32_t> Step(std::initializer_list<Entry> entries,
                            std::vector<RequestIndex> released = {}) {
    step::StepPlan plan;
    plan.released = std::move(released);
    int32_t num_tokens = 0;
    for (const Entry& entry : entries) {
      step::ScheduledRequest& added = plan.scheduled.emplace_back();
      added.index = RequestIndex(entry.index);
      added.token_ids.assign(static_cast<size_t>(entry.num_tokens), 1);
      num_tokens += entry.num_tokens;
      if (entry.adapter < 0) continue;
      auto request = std::make_shared<step::Request>();
      request->adapter = AdapterId(static_cast<uint64_t>(entry.adapter));
      added.start = std::move(request);
    }
    slots_->Apply(plan);
    slots_->CheckIntegrity();
    ops::StepBatch batch;
    slots_->AddTo(plan, &batch);
    return {batch.adapter_slots, batch.adapter_slots + num_tokens};
  }

  std::map<int32_t, std::shared_ptr<const program::AdapterWeights>> held_;
  std::vector<AdapterId> forgotten_;
  AdapterStore store_;
  std::unique_ptr<RunningAdapters> slots_;
};

TEST_F(RunningAdaptersTest, RequestsOfOneAdapterShareItsSlot) {
  EXPECT_EQ(Step({{0, 2, 7}, {1, 1, 0}, {2, 1, 8}, {3, 2, 7}}),
            (std::vector<int32_t>{0, 0, -1, 1, 0, 0}));
  EXPECT_EQ(Step({{3, 1}, {2, 1}, {1, 2}}), (std::vector<int32_t>{0, 1, -1, -1}));
  EXPECT_EQ(Step({{3, 1}}, {RequestIndex(0)}), (std::vector<int32_t>{0})) << "3 still has it";
  EXPECT_NE(held_[0], nullptr);
}

TEST_F(RunningAdaptersTest, ASlotComesFreeWithItsLastRequest) {
  Step({{0, 1, 7}, {1, 1, 8}});
  EXPECT_EQ(Step({{2, 1, 9}}, {RequestIndex(0)}), (std::vector<int32_t>{0}));
  EXPECT_EQ(held_[0], store_.Find(AdapterId(9))->at(0));
  Step({}, {RequestIndex(1), RequestIndex(2)});
  EXPECT_EQ(held_[0], nullptr);
  EXPECT_EQ(held_[1], nullptr);
}

TEST_F(RunningAdaptersTest, AnotherRequestInItsPlaceReleasesARequest) {
  Step({{0, 1, 7}});
  EXPECT_EQ(Step({{0, 1, 0}}), (std::vector<int32_t>{-1}));
  EXPECT_EQ(held_[0], nullptr);
}

TEST_F(RunningAdaptersTest, UnloadingConcernsRequestsThatBeginLater) {
  Step({{0, 1, 7}});
  store_.Remove(AdapterId(7));
  store_.Remove(AdapterId(5));  // which it never had
  EXPECT_EQ(Step({{0, 1}, {1, 1, 7}}), (std::vector<int32_t>{0, 0})) << "they share the slot";
  EXPECT_EQ(forgotten_, std::vector<AdapterId>{AdapterId(7)});
  Step({}, {RequestIndex(0), RequestIndex(1)});
  EXPECT_EQ(Step({{2, 1, 7}}), (std::vector<int32_t>{-1}));
  EXPECT_EQ(slots_->status(RequestIndex(2)).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Step({{2, 1, 8}}), (std::vector<int32_t>{0}));
  EXPECT_TRUE(slots_->status(RequestIndex(2)).ok());
}

TEST_F(RunningAdaptersTest, AnIdIsAddedOnce) {
  EXPECT_FALSE(store_.Add(AdapterId(7), {MakeWeights()}).ok());
  EXPECT_FALSE(store_.Add(step::kNoAdapter, {MakeWeights()}).ok());
  store_.Remove(AdapterId(5));
}

}  // namespace
}  // namespace pagemill::runner
