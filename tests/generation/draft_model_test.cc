// Drafts of a second model: greedy outputs equal those without drafts and sampled ones have the
// same distribution, regardless of other events; a draft model that equals the target is always
// right, which also tests every position of its KV cache.
#include "cc/runner/draft_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/testing/bracket_matcher.h"

namespace pagemill {
namespace {

using engine::Engine;
using engine::RequestOutput;
using runner::ContextExecutor;
using runner::DraftModel;
using runner::ModelRunner;
using sampling::HashModel;
using step::Request;
using step::RequestId;

constexpr int32_t kEos = 11;

struct World {
  sampling::HashModelOptions model;
  engine::RunnerLimits limits = {};
  std::vector<Request> requests = {};
  bool drafts = false;
  int32_t steps_in_flight = 1;
  bool head = false;  // the draft model reads states, and has its tokens in another order
};

// Times of a step of the target at any size, and of a pass of the draft model: drafts pay off.
constexpr int64_t kStepNanos = 500'000, kPassNanos = 10'000;

struct Ran {
  std::map<RequestId, std::vector<int32_t>> outputs;
  engine::EngineStats stats;
  int64_t num_missing_states = 0, num_head_tokens = 0;
};

// Runs the requests of a world concurrently, as far as slots and pages suffice.
Ran Generate(World world) {
  const HashModel model(world.model);
  engine::RunnerLimits& limits = world.limits;
  limits.vocab_size = world.model.vocab_size;
  limits.block_size = 4;
  const int32_t num_slots = limits.num_blocks * 8;
  ContextExecutor target(&model, num_slots, world.steps_in_flight), drafter(&model, num_slots);
  drafter.drafts = true;
  FakeClock step_clock;  // the same steps in each run, independent of machine load
  target.on_enqueue = [&](const ops::StepBatch&) {
    step_clock.AdvanceNanos(kStepNanos);
    return OkStatus();
  };
  drafter.on_enqueue = [&](const ops::StepBatch&) {
    step_clock.AdvanceNanos(kPassNanos);
    return OkStatus();
  };
  device::ThreadPool pool({.num_threads = 2});
  runner::ModelRunnerParts parts = {.clock = &step_clock};
  if (world.drafts) {
    limits.kv_groups.push_back({.block_size = 8});
    limits.max_draft_tokens = 5;
    runner::DraftModelOptions draft_options = {.first_kv_group = 1,
                                               .num_tokens = limits.vocab_size};
    if (world.head) {
      target.states = ContextExecutor::States::kGives;
      drafter.states = ContextExecutor::States::kReads;
      for (int32_t t = 0; t < limits.vocab_size; ++t) {
        draft_options.token_ids.push_back((t * 7 + 3) % limits.vocab_size);
      }
      drafter.column_tokens = draft_options.token_ids;
      draft_options.states_width = 2;
    }
    parts.draft_model = *DraftModel::Create(&drafter, &pool, &step_clock, limits, draft_options);
  }
  auto runner = *ModelRunner::Create(&target, &pool, limits, std::move(parts));
  SteadyClock clock;
  engine::EngineOptions options;
  options.max_in_flight_steps = world.steps_in_flight;
  options.check_integrity = world.requests.size() < 100;
  options.max_waiting_requests = static_cast<int32_t>(world.requests.size());
  auto engine = *Engine::Create(options, runner.get(), &clock, {});
  size_t unfinished = 0;
  for (Request& request : world.requests) {
    const Status status = engine->Submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status.ToString();
    unfinished += status.ok();
  }
  Ran ran;
  while (unfinished > 0) {
    for (RequestOutput& output : engine->Wait(10)) {
      EXPECT_TRUE(output.error.ok()) << output.error.ToString();
      unfinished -= output.finished();
      std::vector<int32_t>& tokens = ran.outputs[output.request_id];
      tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
    }
  }
  EXPECT_EQ(drafter.num_wrong_states, 0);
  EXPECT_EQ(drafter.num_stale_contexts, 0);
  ran.num_missing_states = drafter.num_missing_states;
  ran.num_head_tokens = drafter.num_tokens;
  ran.stats = engine->stats();
  engine->Shutdown();
  runner->CheckIntegrity();
  return ran;
}

// Twelve requests, half of which share a prefix, in a pool that is too small for all of them.
World CrowdedWorld(uint64_t seed, float draft_noise) {
  World world = {.model = {.vocab_size = 12, .seed = seed, .draft_noise = draft_noise}};
  world.limits.max_num_tokens = 24;
  world.limits.max_num_seqs = 5;
  world.limits.max_num_logits_rows = 20;
  world.limits.max_model_len = 96;
  world.limits.num_blocks = 42;
  std::mt19937 rng(static_cast<uint32_t>(seed));
  std::vector<int32_t> shared(18);
  for (int32_t& token : shared) token = static_cast<int32_t>(rng() % 12);
  for (uint64_t id = 1; id <= 12; ++id) {
    Request& request = world.requests.emplace_back();
    request.id = RequestId(id);
    if (rng() % 2 == 0) request.prompt_token_ids = shared;
    for (uint32_t n = 1 + rng() % 20; n > 0; --n) {
      request.prompt_token_ids.push_back(static_cast<int32_t>(rng() % 12));
    }
    request.sampling.temperature = 0.0f;
    request.sampling.seed = rng();
    request.sampling.max_tokens = static_cast<int32_t>(1 + rng() % 50);
    request.sampling.eos_token_ids = {kEos};
  }
  return world;
}

// Steps in flight, and whether the draft model is a head.
class GenerationWithADraftModel : public testing::TestWithParam<std::tuple<int32_t, bool>> {};

TEST_P(GenerationWithADraftModel, GivesTheGreedyTokensOfGenerationWithout) {
  uint64_t accepted = 0, rejected = 0, preemptions = 0, hits = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    World world = CrowdedWorld(seed, /*draft_noise=*/0.8f);
    for (Request& request : world.requests) {
      if (seed % 2 == 0 && request.id.value() % 3 == 0) request.sampling.frequency_penalty = 0.3f;
      if (request.id.value() % 4 == 0) request.sampling.logprobs = 1;
      if (request.id.value() % 5 != 0) continue;
      request.new_token_matcher = []() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
        return std::unique_ptr<step::TokenMatcher>(
            std::make_unique<sampling::BracketMatcher>(sampling::BracketMatcherOptions{
                .vocabulary = {"(", ")", "[", "]", "{", "}", "x", "y", "z", "()", "[]", ""},
                .eos_token_id = kEos}));
      };
    }
    const Ran plain = Generate(world);
    world.drafts = true;
    std::tie(world.steps_in_flight, world.head) = GetParam();
    const Ran drafted = Generate(world);
    ASSERT_EQ(drafted.outputs, plain.outputs) << seed;
    accepted += drafted.stats.accepted_draft_tokens;
    rejected += drafted.stats.draft_tokens - drafted.stats.accepted_draft_tokens;
    preemptions += drafted.stats.num_preemptions;
    hits += drafted.stats.prefix_cache_hit_tokens;
  }
  EXPECT_GT(accepted, 100u);
  EXPECT_GT(rejected, 50u);
  EXPECT_GT(preemptions, 5u);
  EXPECT_GT(hits, 100u);
}

TEST_P(GenerationWithADraftModel, ADraftModelThatEqualsTheTargetIsAlwaysRight) {
  uint64_t accepted = 0, preemptions = 0, hits = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    World world = CrowdedWorld(seed, /*draft_noise=*/0.0f);
    for (Request& request : world.requests) {
      request.sampling.temperature = request.id.value() % 2 == 0 ? 0.0f : 0.8f;
      if (request.id.value() % 3 == 0) request.sampling.top_p = 0.8f;
      request.sampling.eos_token_ids.clear();  // drafts after the end would not count as accepted
    }
    world.drafts = true;
    std::tie(world.steps_in_flight, world.head) = GetParam();
    const Ran ran = Generate(world);
    EXPECT_EQ(ran.stats.draft_tokens, ran.stats.accepted_draft_tokens) << seed;
    // Those in front of a request, and behind prefixes that were hit.
    if (world.head) EXPECT_LT(ran.num_missing_states, ran.num_head_tokens / 5) << seed;
    accepted += ran.stats.accepted_draft_tokens;
    preemptions += ran.stats.num_preemptions;
    hits += ran.stats.prefix_cache_hit_tokens;
  }
  EXPECT_GT(accepted, 500u);
  EXPECT_GT(preemptions, 5u);
  EXPECT_GT(hits, 100u);
}

TEST(GenerationWithAHead, OnlyTheFirstTokenOfARequestHasNoState) {
  for (const int32_t steps_in_flight : {1, 2, 4}) {
    World world = CrowdedWorld(/*seed=*/5, /*draft_noise=*/0.5f);
    world.limits.num_blocks = 1000;  // none is preempted
    world.limits.prefix_caching = false;
    world.drafts = world.head = true;
    world.steps_in_flight = steps_in_flight;
    const auto num_requests = static_cast<int64_t>(world.requests.size());
    const Ran ran = Generate(std::move(world));
    EXPECT_GT(ran.stats.accepted_draft_tokens, 20u);
    EXPECT_EQ(ran.stats.num_preemptions, 0u);
    // It is computed once, or never of a request that has no drafts.
    EXPECT_LE(ran.num_missing_states, num_requests);
    EXPECT_GT(ran.num_missing_states, 0);
  }
}

class SamplingWithADraftModel : public testing::TestWithParam<std::tuple<int32_t, bool>> {};

// Compares the three tokens after a prompt, over 10,000 seeds, with their exact distribution.
TEST_P(SamplingWithADraftModel, SampledTokensHaveTheDistributionOfTheTarget) {
  constexpr int32_t kVocab = 5, kTokens = 3, kSamples = 10000;
  World world = {.model = {.vocab_size = kVocab, .seed = 3, .scale = 0.8f}};
  world.limits.max_num_tokens = 512;
  world.limits.max_num_seqs = 64;
  world.limits.max_num_logits_rows = 512;
  world.limits.max_model_len = 16;
  world.limits.num_blocks = 400;
  world.drafts = true;
  std::tie(world.steps_in_flight, world.head) = GetParam();
  const std::vector<int32_t> prompt = {1, 2, 3};
  for (int32_t i = 1; i <= kSamples; ++i) {
    Request& request = world.requests.emplace_back();
    request.id = RequestId(static_cast<uint64_t>(i));
    request.prompt_token_ids = prompt;
    request.sampling.temperature = 1.0f;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.max_tokens = kTokens + 2;  // so that the third may have drafts after it
  }
  const HashModel model(world.model);
  const Ran ran = Generate(std::move(world));
  const uint64_t rejected = ran.stats.draft_tokens - ran.stats.accepted_draft_tokens;
  EXPECT_GT(ran.stats.accepted_draft_tokens, 1000u);
  EXPECT_GT(rejected, 500u);
  std::map<std::vector<int32_t>, int32_t> counts;
  for (const auto& [id, tokens] : ran.outputs) {
    ++counts[{tokens.begin(), tokens.begin() + kTokens}];
  }
  double chi_square = 0.0;
  for (int32_t cell = 0; cell < kVocab * kVocab * kVocab; ++cell) {
    const std::vector<int32_t> tokens = {cell % kVocab, cell / kVocab % kVocab,
                                         cell / kVocab / kVocab};
    std::vector<int32_t> text = prompt;
    double expected = kSamples;
    for (int32_t token : tokens) {
      expected *= double{sampling::Softmax(model.Logits(text))[static_cast<size_t>(token)]};
      text.push_back(token);
    }
    const double difference = counts[tokens] - expected;
    chi_square += difference * difference / expected;
    EXPECT_GT(expected, 5.0);
  }
  // 124 degrees of freedom: mean 124, standard deviation 15.7. The requests' timing decides which
  // tokens have drafts, so the bound is that of one failure in 10^6 runs.
  EXPECT_LT(chi_square, 211.0);
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, GenerationWithADraftModel,
                         testing::Combine(testing::Values(1, 2, 4), testing::Bool()));
// With more steps, the first drafts come too late for the third token.
INSTANTIATE_TEST_SUITE_P(StepsInFlight, SamplingWithADraftModel,
                         testing::Combine(testing::Values(1, 2), testing::Bool()));

}  // namespace
}  // namespace pagemill
