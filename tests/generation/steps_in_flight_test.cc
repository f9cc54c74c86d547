// Several steps in flight: engine and native runner together, with an executor that returns its
// output later than it accepts steps. Requests get the same tokens as with one step in flight and
// without drafts.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/ngram_proposer.h"
#include "cc/sampling/testing/bracket_matcher.h"
#include "cc/sampling/testing/hash_model.h"

namespace pagemill {
namespace {

using engine::Engine;
using engine::RequestOutput;
using runner::ContextExecutor;
using runner::ModelRunner;
using sampling::BracketMatcher;
using sampling::HashModel;
using step::Request;
using step::RequestId;

const std::vector<std::string> kVocabulary = {"(", ")", "[", "]", "x", "y", "()", "</s>"};
constexpr int32_t kVocab = 8, kEos = 7;

// The requests of a world, in addition to greedy ones.
struct World {
  uint64_t seed = 1;
  bool drawn = false;    // two of three with a temperature
  bool sampled = false;  // some with a temperature, penalties, logprobs
  bool masked = false;   // some with a token matcher
  bool aborted = false;  // some are aborted at any time
  bool failing = false;  // some steps fail when they are collected
  bool drafts = false;   // from the request's own text
  int32_t steps_in_flight = 2;
};

struct Ran {
  std::map<RequestId, std::vector<int32_t>> outputs;
  std::map<RequestId, Status> errors;  // of failed and aborted requests
  engine::EngineStats stats;
  int64_t num_overlapping_steps = 0, num_tokens_of_rows = 0, num_drawn = 0;
};

StatusOr<std::unique_ptr<step::TokenMatcher>> NewBrackets() {
  return std::unique_ptr<step::TokenMatcher>(std::make_unique<BracketMatcher>(
      sampling::BracketMatcherOptions{.vocabulary = kVocabulary, .eos_token_id = kEos}));
}

std::vector<Request> MakeRequests(const World& world) {
  std::mt19937_64 rng(world.seed);
  std::vector<Request> requests(14);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = RequestId(i + 1);
    for (uint32_t n = 1 + rng() % 20; n > 0; --n) {
      request.prompt_token_ids.push_back(static_cast<int32_t>(rng() % kVocab));
    }
    step::SamplingParams& sampling = request.sampling;
    sampling.temperature = world.sampled && rng() % 8 == 0 ? 0.8f : 0.0f;
    if (world.drawn && rng() % 3 > 0) {
      sampling.temperature = 1.2f;
      sampling.top_k = rng() % 2 == 0 ? 5 : 0;
      sampling.top_p = rng() % 2 == 0 ? 0.9f : 1.0f;
    }
    sampling.seed = rng();
    sampling.max_tokens = static_cast<int32_t>(1 + rng() % 40);
    if (rng() % 3 == 0) sampling.min_tokens = sampling.max_tokens / 3;
    if (world.sampled && rng() % 9 == 0) sampling.frequency_penalty = 0.3f;
    if (world.sampled && rng() % 9 == 0) sampling.logprobs = 1;
    if (world.sampled && rng() % 9 == 0) sampling.prompt_logprobs = 1;
    if (rng() % 2 == 0) sampling.eos_token_ids = {kEos};
    if (world.masked && rng() % 8 == 0) request.new_token_matcher = NewBrackets;
  }
  return requests;
}

engine::RunnerLimits Limits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 24;
  limits.max_num_seqs = 5;
  limits.max_num_logits_rows = 24;
  limits.max_model_len = 64;
  limits.vocab_size = kVocab;
  limits.num_blocks = 30;
  limits.block_size = 4;
  return limits;
}

// Runs the requests of a world concurrently, in a pool that is too small for all of them.
Ran Generate(const World& world) {
  // With so little context, texts soon repeat.
  const HashModel model({.vocab_size = kVocab, .seed = world.seed, .context_tokens = 2});
  engine::RunnerLimits limits = Limits();
  ContextExecutor executor(&model, limits.num_blocks * limits.block_size, world.steps_in_flight);
  std::mt19937_64 rng(world.seed + 1000);
  if (world.failing) {
    executor.on_collect = [&rng] { return rng() % 25 == 0 ? Internal("lost") : OkStatus(); };
  }
  device::ThreadPool pool({.num_threads = 2});
  const FakeClock no_time;  // drafts are free: as many as the proposer has are used
  runner::ModelRunnerParts parts = {.clock = &no_time};
  if (world.drafts) {
    limits.max_draft_tokens = 4;
    parts.proposer = std::make_unique<sampling::NgramProposer>(
        sampling::NgramProposerOptions{.max_num_seqs = limits.max_num_seqs, .min_n = 1});
  }
  auto runner = *ModelRunner::Create(&executor, &pool, limits, std::move(parts));
  SteadyClock clock;
  engine::EngineOptions options;
  options.max_in_flight_steps = world.steps_in_flight;
  options.check_integrity = true;
  auto engine = *Engine::Create(options, runner.get(), &clock, {});
  size_t unfinished = 0;
  for (Request& request : MakeRequests(world)) {
    EXPECT_TRUE(engine->Submit(std::move(request)).ok());
    ++unfinished;
  }
  Ran ran;
  std::mt19937_64 aborts(world.seed + 2000);
  while (unfinished > 0) {
    for (RequestOutput& output : engine->Wait(10)) {
      unfinished -= output.finished();
      std::vector<int32_t>& tokens = ran.outputs[output.request_id];
      tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
      const bool over = output.finish_reason == step::FinishReason::kAbort || !output.error.ok();
      if (over) ran.errors[output.request_id] = output.error;
      if (world.aborted && aborts() % 30 == 0) engine->Abort(output.request_id);
    }
  }
  ran.stats = engine->stats();
  engine->Shutdown();
  runner->CheckIntegrity();
  ran.num_overlapping_steps = executor.num_overlapping_steps;
  ran.num_tokens_of_rows = executor.num_tokens_of_rows;
  ran.num_drawn = executor.num_drawn;
  return ran;
}

// Aborted or failed requests have a prefix of the expected tokens.
void ExpectSameTokens(const Ran& ran, const Ran& plain) {
  for (const auto& [id, tokens] : plain.outputs) {
    const std::vector<int32_t>& got = ran.outputs.at(id);
    if (!ran.errors.contains(id)) {
      EXPECT_EQ(got, tokens) << "request " << id.value();
      continue;
    }
    ASSERT_LE(got.size(), tokens.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), tokens.begin())) << "request " << id.value();
  }
}

class StepsInFlight : public testing::TestWithParam<World> {};

TEST_P(StepsInFlight, GiveTheTokensOfOneStepAfterTheOther) {
  int64_t overlapping = 0, of_rows = 0, drawn = 0;
  uint64_t preemptions = 0, stopped = 0, drafts = 0, accepted = 0;
  size_t errors = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    World world = GetParam();
    world.seed = seed;
    World plain_world = world;
    plain_world.aborted = plain_world.failing = plain_world.drafts = false;
    plain_world.steps_in_flight = 1;
    const Ran plain = Generate(plain_world);
    EXPECT_EQ(plain.num_overlapping_steps + plain.num_tokens_of_rows + plain.num_drawn, 0);
    const Ran ran = Generate(world);
    ExpectSameTokens(ran, plain);
    overlapping += ran.num_overlapping_steps;
    of_rows += ran.num_tokens_of_rows;
    drawn += ran.num_drawn;
    preemptions += ran.stats.num_preemptions;
    stopped += ran.stats.finished_stop;
    errors += ran.errors.size();
    drafts += ran.stats.draft_tokens;
    accepted += ran.stats.accepted_draft_tokens;
  }
  const int64_t few = GetParam().drafts ? 0 : 50;  // the host waits for a step that verifies drafts
  EXPECT_EQ(overlapping > few, GetParam().steps_in_flight > 1);
  EXPECT_EQ(of_rows > few, GetParam().steps_in_flight > 1);
  EXPECT_EQ(drawn > 50, GetParam().drawn || GetParam().sampled) << drawn;
  EXPECT_EQ(accepted > 500, GetParam().drafts);
  EXPECT_EQ(drafts > accepted + 100, GetParam().drafts);
  EXPECT_GT(preemptions, 5u);
  EXPECT_GT(stopped, 5u);
  EXPECT_EQ(errors > 0, GetParam().aborted || GetParam().failing);
}

INSTANTIATE_TEST_SUITE_P(Worlds, StepsInFlight,
                         testing::Values(World{}, World{.drawn = true}, World{.sampled = true},
                                         World{.masked = true},
                                         World{.drawn = true, .aborted = true, .failing = true},
                                         World{.sampled = true, .masked = true, .aborted = true},
                                         World{.sampled = true, .masked = true, .failing = true},
                                         World{.steps_in_flight = 4}));

INSTANTIATE_TEST_SUITE_P(
    WithDrafts, StepsInFlight,
    testing::Values(World{.drafts = true, .steps_in_flight = 1}, World{.drafts = true},
                    World{.drafts = true, .steps_in_flight = 4},
                    World{.drawn = true, .drafts = true, .steps_in_flight = 4},
                    World{.sampled = true, .masked = true, .drafts = true},
                    World{.sampled = true, .masked = true, .aborted = true, .drafts = true},
                    World{.sampled = true, .masked = true, .failing = true, .drafts = true}));

}  // namespace
}  // namespace pagemill
