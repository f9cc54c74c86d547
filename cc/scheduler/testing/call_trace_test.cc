// Whatever a scheduler can be asked to do, a recording replays to the same plans, events and
// transfers, on every machine.
#include "cc/scheduler/testing/call_trace.h"

#include <functional>
#include <string>
#include <utility>

#include "cc/base/xxh3.h"
#include "cc/step/finish_reason.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using step::FinishReason;
using step::FinishReasonName;

constexpr int kNumCalls = 2500;

TraceSetup Small() {
  TraceSetup setup;
  setup.num_calls = kNumCalls;
  SchedulerOptions& options = setup.options;
  options.max_num_tokens = 24;
  options.max_num_seqs = 6;
  options.max_num_logits_rows = 12;
  options.max_model_len = 60;
  options.vocab_size = 61;
  options.max_waiting_requests = 12;
  options.kv_cache.num_blocks = 22;
  options.kv_cache.block_size = 4;
  return setup;
}

TraceSetup Priorities() {
  TraceSetup setup = Small();
  setup.options.policy = "priority";
  setup.options.long_prefill_token_threshold = 12;
  setup.options.max_partial_prefills = 2;
  setup.options.max_long_partial_prefills = 1;
  return setup;
}

TraceSetup TenantsWithDrafts() {
  TraceSetup setup = Small();
  setup.options.policy = "fair";
  setup.options.tenant_weights = {{"a", 3}};
  setup.options.max_waiting_per_tenant = 5;
  setup.options.max_draft_tokens = 6;
  setup.options.kv_cache.num_blocks = 18;
  setup.options.kv_cache.eviction = "reuse";
  return setup;
}

TraceSetup StepsAhead() {
  TraceSetup setup = Small();
  setup.max_steps_in_flight = 3;
  setup.options.decode_ahead = true;
  setup.options.kv_cache.hash_algorithm = kv_cache::HashAlgorithm::kSha256;
  return setup;
}

TraceSetup DraftsAhead() {
  TraceSetup setup = Small();
  setup.max_steps_in_flight = 3;
  setup.options.decode_ahead = true;
  setup.options.max_draft_tokens = 4;
  return setup;
}

TraceSetup HybridGroups() {
  TraceSetup setup = Small();
  setup.max_steps_in_flight = 2;
  setup.options.kv_cache.num_blocks = 60;
  setup.options.kv_cache.groups = {{.kind = "full"},
                                   {.kind = "sliding_window", .window_tokens = 10},
                                   {.kind = "state_space", .pages_per_block = 2}};
  return setup;
}

TraceSetup Loads(TracedConnector connector) {
  TraceSetup setup = Small();
  setup.max_steps_in_flight = 2;
  setup.connector = connector;
  return setup;
}

int64_t Parked(const CallTrace& trace, ParkReason reason) {
  return trace.most_parked[static_cast<size_t>(reason)];
}

// Records, replays, and tells what the recording saw, so that a test can ask whether it was enough.
CallTrace RecordedAndReplayed(const TraceSetup& setup) {
  CallTrace trace = RecordCalls(setup);
  EXPECT_EQ(ReplayCalls(setup, trace.text), kNumCalls);
  EXPECT_GT(trace.stats.num_preemptions, 10u);
  EXPECT_GT(trace.stats.prefix_cache_hit_tokens, 50u);
  for (FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError}) {
    EXPECT_GT(trace.stats.finished[static_cast<size_t>(reason)], 0u) << FinishReasonName(reason);
  }
  for (ParkReason reason : {ParkReason::kHeld, ParkReason::kPrefixInFlight,
                            ParkReason::kAwaitingInput, ParkReason::kPaused}) {
    EXPECT_GT(Parked(trace, reason), 0) << ParkReasonName(reason);
  }
  return trace;
}

TEST(CallTrace, ReplaysPrioritiesAndLongPrompts) {
  const CallTrace trace = RecordedAndReplayed(Priorities());
  EXPECT_GT(Parked(trace, ParkReason::kLongPrefill), 0);
}

TEST(CallTrace, ReplaysTenantsAndDrafts) {
  const CallTrace trace = RecordedAndReplayed(TenantsWithDrafts());
  EXPECT_GT(trace.stats.accepted_draft_tokens, 100u);
  EXPECT_LT(trace.stats.accepted_draft_tokens, trace.stats.draft_tokens);
}

TEST(CallTrace, ReplaysStepsAheadOfTheirTokens) {
  const CallTrace trace = RecordedAndReplayed(StepsAhead());
  EXPECT_NE(trace.text.find("tokens=-1"), std::string::npos);
}

TEST(CallTrace, ReplaysDraftsOfStepsAhead) {
  const CallTrace trace = RecordedAndReplayed(DraftsAhead());
  EXPECT_NE(trace.text.find("tokens=-1 drafts=-1"), std::string::npos);
  EXPECT_NE(trace.text.find("missing_drafts="), std::string::npos);
  EXPECT_GT(trace.stats.accepted_draft_tokens, 100u);
  EXPECT_LT(trace.stats.accepted_draft_tokens, trace.stats.draft_tokens);
}

TEST(CallTrace, ReplaysHybridGroups) { RecordedAndReplayed(HybridGroups()); }

TEST(CallTrace, ReplaysLoadsFromTiers) {
  const CallTrace trace = RecordedAndReplayed(Loads(TracedConnector::kTiers));
  EXPECT_GT(trace.stats.kv_loaded_tokens, 20u);  // resets of the cache empty the tiers, too
  EXPECT_GT(trace.stats.num_failed_kv_loads, 0u);
  EXPECT_GT(Parked(trace, ParkReason::kKvLoad), 0);
}

TEST(CallTrace, ReplaysLookupsInFiles) {
  const CallTrace trace = RecordedAndReplayed(Loads(TracedConnector::kFiles));
  EXPECT_GT(trace.stats.kv_loaded_tokens, 50u);
  EXPECT_GT(Parked(trace, ParkReason::kKvLookup), 0);
}

TEST(CallTrace, AReplayFindsTheFirstCallThatBringsSomethingElse) {
  TraceSetup setup = Priorities();
  const CallTrace trace = RecordCalls(setup);
  setup.options.max_num_seqs = 5;
  EXPECT_LT(ReplayCalls(setup, trace.text), kNumCalls);
  EXPECT_GT(ReplayCalls(setup, trace.text), 5);
}

TEST(CallTrace, IsTheSameOnEveryMachine) {
  std::string all;
  for (const TraceSetup& setup : {Priorities(), TenantsWithDrafts(), StepsAhead(), HybridGroups(),
                                  Loads(TracedConnector::kTiers), Loads(TracedConnector::kFiles)}) {
    all += RecordCalls(setup).text;
  }
  // A change of what the scheduler decides, or of how it is written, updates this digest; the test
  // is that all architectures agree on it.
  EXPECT_EQ(Xxh3_128(all.data(), all.size()).low, 2890418179292257922u);
  const std::string ahead = RecordCalls(DraftsAhead()).text;
  EXPECT_EQ(Xxh3_128(ahead.data(), ahead.size()).low, 7097808267958208485u);
}

}  // namespace
}  // namespace pagemill::scheduler
