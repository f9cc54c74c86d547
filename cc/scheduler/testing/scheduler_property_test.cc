// Random requests, aborts, steps, failures and resets against a reference that knows nothing of
// blocks, batches or preemption: each request must get exactly the tokens that the fake model gives
// it alone.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cc/scheduler/scheduler.h"
#include "cc/step/fake_model.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using step::FakeModel;
using step::FinishReason;
using step::Request;
using step::RequestId;
using step::SamplingParams;

struct Setup {
  const char* name;
  int num_operations;
  int32_t num_blocks = 24;
  int32_t block_size = 4;
  int32_t max_num_tokens = 24;
  int32_t max_num_seqs = 6;
  int32_t max_num_logits_rows = 12;
  int32_t max_model_len = 60;
  int32_t long_prefill_token_threshold = 0;
  bool chunked_prefill = true;
  bool prefix_caching = true;
  bool pooling = false;
  kv_cache::HashAlgorithm hash = kv_cache::HashAlgorithm::kXxh3_128;
  int max_in_flight = 1;
  int32_t max_draft_tokens = 0;
  bool decode_ahead = false;
};

constexpr int32_t kVocabSize = 61;

// What must come out of a request that nobody aborts.
struct Expected {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kLength;
  std::optional<int32_t> stop_token_id;
};

Expected Expect(const Request& request, int32_t max_request_tokens) {
  Expected expected;
  if (request.pooling) return {{}, FinishReason::kStop, std::nullopt};
  const SamplingParams& p = request.sampling;
  const auto prompt_size = static_cast<int32_t>(request.prompt_token_ids.size());
  const int32_t most = std::min(p.max_tokens, max_request_tokens - prompt_size);
  const auto has = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::count(ids.begin(), ids.end(), id) > 0;
  };
  for (int32_t token :
       FakeModel::Continue(request.prompt_token_ids, static_cast<size_t>(most), kVocabSize)) {
    expected.tokens.push_back(token);
    if (static_cast<int32_t>(expected.tokens.size()) < p.min_tokens) continue;
    if (!p.ignore_eos && has(p.eos_token_ids, token)) {
      expected.reason = FinishReason::kStop;
      return expected;
    }
    if (has(p.stop_token_ids, token)) {
      expected.reason = FinishReason::kStop;
      expected.stop_token_id = token;
      return expected;
    }
  }
  return expected;
}

class Simulation {
 public:
  Simulation(const Setup& setup, uint32_t seed)
      : setup_(setup), random_(seed), model_(ModelOptions(setup)) {
    SchedulerOptions options;
    options.max_num_tokens = setup.max_num_tokens;
    options.max_num_seqs = setup.max_num_seqs;
    options.max_num_logits_rows = setup.max_num_logits_rows;
    options.max_model_len = setup.max_model_len;
    options.vocab_size = kVocabSize;
    options.long_prefill_token_threshold = setup.long_prefill_token_threshold;
    options.max_waiting_requests = 10;
    options.chunked_prefill = setup.chunked_prefill;
    options.pooling = setup.pooling;
    options.drafts.max_draft_tokens = setup.max_draft_tokens;
    options.decode_ahead = setup.decode_ahead;
    options.kv_cache.num_blocks = setup.num_blocks;
    options.kv_cache.block_size = setup.block_size;
    options.kv_cache.enable_prefix_caching = setup.prefix_caching;
    options.kv_cache.hash_algorithm = setup.hash;
    auto scheduler = Scheduler::Create(options);
    PM_CHECK(scheduler.ok());
    scheduler_ = std::move(*scheduler);
  }

  void Run() {
    for (int i = 0; i < setup_.num_operations && !testing::Test::HasFailure(); ++i) {
      RandomOperation();
      const Status status = scheduler_->CheckIntegrity();
      ASSERT_TRUE(status.ok()) << status.ToString() << " after operation " << i;
    }
    Drain();
  }

  SchedulerStats stats() const { return scheduler_->stats(); }
  int num_finished() const { return num_finished_; }

 private:
  struct Live {
    Request request;
    Expected expected;
    std::vector<int32_t> tokens;
    bool prompt_logprobs_seen = false;
  };

  static FakeModel::Options ModelOptions(const Setup& setup) {
    FakeModel::Options options;
    options.num_blocks = setup.num_blocks;
    options.block_size = setup.block_size;
    options.max_num_seqs = setup.max_num_seqs;
    options.vocab_size = kVocabSize;
    options.max_num_tokens = setup.max_num_tokens;
    options.max_num_logits_rows = setup.max_num_logits_rows;
    options.chunked_prefill = setup.chunked_prefill;
    options.max_draft_tokens = setup.max_draft_tokens;
    return options;
  }

  int32_t Pick(int32_t low, int32_t high) {  // the same on every standard library
    return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }

  void RandomOperation() {
    const int32_t dice = Pick(0, 99);
    if (dice < 22) {
      AddRequest();
    } else if (dice < 25) {
      AbortRandom();
    } else if (dice < 26) {
      ResetCache();
    } else if (dice < 27) {
      FailStep();
    } else if (dice < 70 && in_flight_.size() < static_cast<size_t>(setup_.max_in_flight)) {
      StartStep();
    } else {
      FinishStep();
    }
  }

  Request RandomRequest() {
    Request request;
    request.id = RequestId(next_id_++);
    // Few distinct beginnings, so that prefixes are shared, and few distinct blocks, so that equal
    // blocks stand behind different beginnings.
    const int32_t family = Pick(0, 3);
    const bool patchwork = Pick(0, 2) == 0;
    const int32_t size = Pick(1, Pick(1, 8) == 1 ? setup_.max_model_len : 20);
    const int32_t common = Pick(0, size);
    int32_t patch = 0;
    for (int32_t i = 0; i < size; ++i) {
      const int32_t offset = i % setup_.block_size;
      if (offset == 0) patch = Pick(0, 2);
      request.prompt_token_ids.push_back(patchwork    ? patch * 9 + offset
                                         : i < common ? (family * 17 + i * 5) % kVocabSize
                                                      : Pick(0, kVocabSize - 1));
    }
    if (Pick(0, 5) == 0) request.cache_salt = Pick(0, 1) == 0 ? "a" : "b";
    request.skip_reading_prefix_cache = Pick(0, 9) == 0;
    if (setup_.pooling) {
      request.pooling.emplace();
      return request;
    }
    SamplingParams& p = request.sampling;
    p.max_tokens = Pick(1, Pick(0, 4) == 0 ? 60 : 12);
    p.min_tokens = Pick(0, 3) == 0 ? Pick(0, p.max_tokens) : 0;
    p.ignore_eos = Pick(0, 3) == 0;
    p.eos_token_ids = {7, 11};
    if (Pick(0, 1) == 0) p.stop_token_ids = {Pick(0, kVocabSize - 1)};
    if (Pick(0, 4) == 0) p.logprobs = Pick(0, 2);
    if (Pick(0, 6) == 0) {
      p.prompt_logprobs = Pick(0, 2);
      if (Pick(0, 1) == 0) p.max_tokens = p.min_tokens = 0;
    }
    return request;
  }

  void AddRequest() {
    const Request request = RandomRequest();
    const Status status = scheduler_->Add(request);
    if (!status.ok()) {
      const bool full = live_.size() >= static_cast<size_t>(setup_.max_num_seqs) + 10;
      EXPECT_EQ(status.code() == StatusCode::kResourceExhausted,
                full && scheduler_->admission().Check(request).ok())
          << status.ToString();
      return;
    }
    live_[request.id] = {
        request, Expect(request, scheduler_->admission().max_request_tokens()), {}, false};
  }

  void AbortRandom() {
    EXPECT_FALSE(scheduler_->Abort(RequestId(next_id_ + 5), &events_));
    if (live_.empty()) return;
    auto victim = std::next(live_.begin(), Pick(0, static_cast<int32_t>(live_.size()) - 1));
    const RequestId id = victim->first;
    ASSERT_TRUE(scheduler_->Abort(id, &events_));
    ASSERT_EQ(events_.size(), 1u);
    EXPECT_EQ(events_[0].id, id);
    EXPECT_EQ(events_[0].finish_reason, FinishReason::kAbort);
    events_.clear();
    live_.erase(victim);
  }

  void ResetCache() {
    const bool idle = scheduler_->stats().kv_blocks_used == 0;
    EXPECT_EQ(scheduler_->ResetPrefixCache(), idle);
  }

  void StartStep() {
    scheduler_->Schedule(&plan_);
    if (plan_.empty()) return;
    StatusOr<step::StepResult> result = model_.Run(plan_);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    in_flight_.push_back({std::move(*result), {}});
    for (const step::ScheduledRequest& entry : plan_.scheduled) {
      if (entry.start) holders_[entry.index] = entry.start->id;
      in_flight_.back().ids.push_back(holders_[entry.index]);
    }
  }

  void FinishStep() {
    if (in_flight_.empty()) return;
    scheduler_->Update(std::move(in_flight_.front().result), &events_);
    in_flight_.pop_front();
    for (const RequestEvent& event : events_) CheckEvent(event);
    events_.clear();
  }

  // The runner loses a whole step, or one request of it.
  void FailStep() {
    if (in_flight_.empty()) return;
    Flight flight = std::move(in_flight_.front());
    in_flight_.pop_front();
    const Status why = Internal("injected");
    if (Pick(0, 1) == 0) {
      scheduler_->FailStep(why, &events_);
    } else {
      const int32_t which = Pick(0, static_cast<int32_t>(flight.result.results.size()) - 1);
      flight.result.results[which].failure = why;
      scheduler_->Update(std::move(flight.result), &events_);
    }
    for (const RequestEvent& event : events_) {
      if (event.error.ok()) {
        CheckEvent(event);
        continue;
      }
      EXPECT_EQ(event.error, why);
      EXPECT_EQ(event.finish_reason, FinishReason::kError);
      EXPECT_EQ(std::count(flight.ids.begin(), flight.ids.end(), event.id), 1);
      EXPECT_EQ(live_.erase(event.id), 1u);
    }
    events_.clear();
  }

  void CheckEvent(const RequestEvent& event) {
    const auto found = live_.find(event.id);
    ASSERT_NE(found, live_.end()) << "an event for a request that is gone";
    Live& live = found->second;
    const SamplingParams& p = live.request.sampling;
    EXPECT_EQ(event.first_tokens, live.tokens.empty() && !event.new_token_ids.empty());
    if (event.prompt_logprobs) CheckPromptLogprobs(event, &live);
    std::vector<int32_t> context = live.request.prompt_token_ids;
    context.insert(context.end(), live.tokens.begin(), live.tokens.end());
    ASSERT_EQ(event.logprobs.size(),
              p.logprobs == SamplingParams::kNoLogprobs ? 0 : event.new_token_ids.size());
    for (size_t i = 0; i < event.logprobs.size(); ++i) {
      EXPECT_EQ(event.logprobs[i].logprob,
                FakeModel::Logprobs(context, event.new_token_ids[i], 0).logprob);
      context.push_back(event.new_token_ids[i]);
    }
    for (int32_t token : event.new_token_ids) live.tokens.push_back(token);
    ASSERT_LE(live.tokens.size(), live.expected.tokens.size());
    ASSERT_TRUE(std::equal(live.tokens.begin(), live.tokens.end(), live.expected.tokens.begin()));
    if (!event.finish_reason) return;
    EXPECT_EQ(live.tokens, live.expected.tokens);
    EXPECT_EQ(*event.finish_reason, live.expected.reason);
    EXPECT_EQ(event.stop_token_id, live.expected.stop_token_id);
    if (live.request.pooling) {
      EXPECT_EQ(event.pooled, FakeModel::Pool(live.request.prompt_token_ids));
    } else {
      EXPECT_EQ(live.prompt_logprobs_seen, p.prompt_logprobs != SamplingParams::kNoLogprobs);
    }
    live_.erase(found);
    ++num_finished_;
  }

  void CheckPromptLogprobs(const RequestEvent& event, Live* live) {
    EXPECT_FALSE(live->prompt_logprobs_seen);
    live->prompt_logprobs_seen = true;
    const std::span<const int32_t> prompt(live->request.prompt_token_ids);
    ASSERT_EQ(event.prompt_logprobs->size(), prompt.size() - 1);
    for (size_t i = 0; i + 1 < prompt.size(); ++i) {
      const step::TokenLogprobs& entry = (*event.prompt_logprobs)[i];
      EXPECT_EQ(entry.token_id, prompt[i + 1]);
      EXPECT_EQ(entry.logprob, FakeModel::Logprobs(prompt.first(i + 1), 0, 0).logprob);
    }
  }

  // Without new requests everything must come to its end, and all blocks must come back.
  void Drain() {
    for (int i = 0; i < 5000 && scheduler_->HasWork() && !testing::Test::HasFailure(); ++i) {
      StartStep();
      FinishStep();
    }
    EXPECT_FALSE(scheduler_->HasWork());
    while (!in_flight_.empty()) FinishStep();
    EXPECT_TRUE(live_.empty());
    EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
    EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
  }

  struct Flight {
    step::StepResult result;
    std::vector<RequestId> ids;
  };

  const Setup setup_;
  std::mt19937 random_;
  FakeModel model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<RequestId, Live> live_;
  std::map<step::RequestIndex, RequestId> holders_;
  std::deque<Flight> in_flight_;
  step::StepPlan plan_;
  std::vector<RequestEvent> events_;
  uint64_t next_id_ = 1;
  int num_finished_ = 0;
};

class SchedulerProperty : public testing::TestWithParam<Setup> {};

TEST_P(SchedulerProperty, EveryRequestGetsItsExactTokens) {
  Simulation simulation(GetParam(), 12345);
  simulation.Run();
  const SchedulerStats stats = simulation.stats();
  EXPECT_GT(simulation.num_finished(), GetParam().num_operations / 20);
  // The setups reach what they are for. Pooling requests start only where they fit, and do not
  // grow.
  EXPECT_EQ(stats.prefix_cache_hit_tokens > 0, GetParam().prefix_caching && !GetParam().pooling);
  EXPECT_EQ(stats.accepted_draft_tokens > 0, GetParam().max_draft_tokens > 0);
  EXPECT_EQ(stats.draft_tokens > stats.accepted_draft_tokens, GetParam().max_draft_tokens > 0);
  EXPECT_EQ(stats.num_preemptions > 0, GetParam().num_blocks < 400 && !GetParam().pooling);
}

std::vector<Setup> Setups() {
  std::vector<Setup> setups;
  const auto add = [&setups](const char* name, int num_operations, auto change) {
    Setup setup{.name = name, .num_operations = num_operations};
    change(setup);
    setups.push_back(setup);
  };
  add("Plain", 60000, [](Setup&) {});
  add("Roomy", 20000, [](Setup& s) { s.num_blocks = 400; });
  add("TightPool", 30000, [](Setup& s) { s.num_blocks = 9; });
  add("BlocksOfOneToken", 20000, [](Setup& s) { s.block_size = 1, s.num_blocks = 70; });
  add("ThreeStepsInFlight", 40000, [](Setup& s) { s.max_in_flight = 3; });
  add("FewLogitsRows", 20000, [](Setup& s) { s.max_num_logits_rows = 3; });
  add("LongPrefillCap", 20000, [](Setup& s) { s.long_prefill_token_threshold = 5; });
  add("UncutPrompts", 20000, [](Setup& s) { s.chunked_prefill = false; });
  add("NoPrefixCache", 20000, [](Setup& s) { s.prefix_caching = false; });
  add("Drafts", 30000, [](Setup& s) { s.max_draft_tokens = 4; });
  add("DraftsInATightPool", 20000, [](Setup& s) { s.max_draft_tokens = 4, s.num_blocks = 9; });
  add("DecodeAhead", 30000, [](Setup& s) { s.max_in_flight = 2, s.decode_ahead = true; });
  add("DecodeFarAheadInATightPool", 20000,
      [](Setup& s) { s.max_in_flight = 4, s.decode_ahead = true, s.num_blocks = 12; });
  add("Sha256", 10000, [](Setup& s) { s.hash = kv_cache::HashAlgorithm::kSha256; });
  add("Pooling", 10000, [](Setup& s) {
    s.pooling = true, s.chunked_prefill = true, s.long_prefill_token_threshold = 4;
    s.num_blocks = 17;
  });
  return setups;
}

INSTANTIATE_TEST_SUITE_P(Setups, SchedulerProperty, testing::ValuesIn(Setups()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pagemill::scheduler
