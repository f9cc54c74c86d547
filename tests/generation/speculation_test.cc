// Drafts from the request's own text or that of others: outputs equal those without drafts, in
// fewer steps, regardless of other events.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/ngram_proposer.h"
#include "cc/sampling/suffix_proposer.h"
#include "cc/sampling/testing/bracket_matcher.h"

namespace pagemill {
namespace {

using engine::Engine;
using engine::RequestOutput;
using runner::ContextExecutor;
using runner::ModelRunner;
using sampling::HashModel;
using step::Request;
using step::RequestId;
using step::TokenMatcher;

constexpr int32_t kVocab = 12, kEos = 11;
const std::vector<std::string> kVocabulary = {"(", ")", "[", "]",  "{",  "}",
                                              "x", "y", "z", "()", "[]", "</s>"};

step::TokenMatcherFactory Brackets() {
  return []() -> StatusOr<std::unique_ptr<TokenMatcher>> {
    return std::unique_ptr<TokenMatcher>(std::make_unique<sampling::BracketMatcher>(
        sampling::BracketMatcherOptions{.vocabulary = kVocabulary, .eos_token_id = kEos}));
  };
}

struct World {
  uint64_t seed = 1;
  bool masked = false;
  bool suffix = false;  // drafts also from the outputs of other requests
};

struct Ran {
  std::map<RequestId, std::vector<int32_t>> outputs;
  engine::EngineStats stats;
  int64_t num_steps = 0;
};

std::vector<Request> MakeRequests(const World& world) {
  std::mt19937 rng(static_cast<uint32_t>(world.seed));
  std::vector<int32_t> shared(9);
  for (int32_t& token : shared) token = static_cast<int32_t>(rng() % kVocab);
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 12; ++id) {
    Request& request = requests.emplace_back();
    request.id = RequestId(id);
    if (rng() % 2 == 0) request.prompt_token_ids = shared;
    for (uint32_t n = 1 + rng() % 20; n > 0; --n) {
      request.prompt_token_ids.push_back(static_cast<int32_t>(rng() % kVocab));
    }
    step::SamplingParams& sampling = request.sampling;
    sampling.temperature = rng() % 2 == 0 ? 0.0f : 0.7f;
    sampling.seed = rng();
    sampling.max_tokens = static_cast<int32_t>(1 + rng() % 60);
    sampling.min_tokens = rng() % 3 == 0 ? sampling.max_tokens / 2 : 0;
    if (rng() % 4 == 0) sampling.frequency_penalty = 0.3f;
    if (rng() % 4 == 0) sampling.logprobs = 1;
    sampling.eos_token_ids = {kEos};
    if (world.masked) request.new_token_matcher = Brackets();
  }
  return requests;
}

// Runs the requests of a world concurrently, in a pool that is too small for all of them.
Ran Generate(const World& world, int32_t max_draft_tokens) {
  // The next token depends on the two before it: texts repeat themselves.
  const HashModel model({.vocab_size = kVocab, .seed = world.seed, .context_tokens = 2});
  engine::RunnerLimits limits;
  limits.max_num_tokens = 24;
  limits.max_num_seqs = 5;
  limits.max_num_logits_rows = 14;
  limits.max_model_len = 90;
  limits.vocab_size = kVocab;
  limits.num_blocks = 40;
  limits.block_size = 4;
  limits.max_draft_tokens = max_draft_tokens;
  ContextExecutor executor(&model, limits.num_blocks * limits.block_size);
  device::ThreadPool pool({.num_threads = 2});
  std::unique_ptr<sampling::DraftProposer> proposer;
  if (world.suffix) {
    proposer = std::make_unique<sampling::SuffixProposer>(
        sampling::SuffixProposerOptions{.max_num_seqs = limits.max_num_seqs, .max_match = 6});
  } else {
    proposer = std::make_unique<sampling::NgramProposer>(sampling::NgramProposerOptions{
        .max_num_seqs = limits.max_num_seqs, .min_n = 2, .max_n = 4});
  }
  const FakeClock no_time;  // drafts are free: as many as the proposer has are used
  auto runner = *ModelRunner::Create(&executor, &pool, limits,
                                     {.proposer = std::move(proposer), .clock = &no_time});
  SteadyClock clock;
  engine::EngineOptions options;
  options.check_integrity = true;
  auto engine = *Engine::Create(options, runner.get(), &clock, {});
  size_t unfinished = 0;
  for (Request& request : MakeRequests(world)) {
    EXPECT_TRUE(engine->Submit(std::move(request)).ok());
    ++unfinished;
  }
  Ran ran;
  while (unfinished > 0) {
    for (RequestOutput& output : engine->Wait(10)) {
      EXPECT_TRUE(output.error.ok()) << output.error.ToString();
      unfinished -= output.finished();
      std::vector<int32_t>& tokens = ran.outputs[output.request_id];
      if (output.logprobs) {
        EXPECT_EQ(output.logprobs->size(), output.new_token_ids.size());
      }
      tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
    }
  }
  ran.stats = engine->stats();
  engine->Shutdown();
  runner->CheckIntegrity();
  ran.num_steps = executor.num_steps;
  return ran;
}

// Whether tokens are masked, and whether drafts come from other requests, too.
class GenerationWithDrafts : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(GenerationWithDrafts, GivesTheTokensOfGenerationWithout) {
  uint64_t accepted = 0, rejected = 0, preemptions = 0, hits = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    const auto [masked, suffix] = GetParam();
    const World world{.seed = seed, .masked = masked, .suffix = suffix};
    const Ran plain = Generate(world, 0);
    EXPECT_EQ(plain.stats.draft_tokens, 0u);
    for (const int32_t max_draft_tokens : {1, 5}) {
      const Ran drafted = Generate(world, max_draft_tokens);
      ASSERT_EQ(drafted.outputs, plain.outputs) << seed;
      accepted += drafted.stats.accepted_draft_tokens;
      rejected += drafted.stats.draft_tokens - drafted.stats.accepted_draft_tokens;
      preemptions += drafted.stats.num_preemptions;
      hits += drafted.stats.prefix_cache_hit_tokens;
    }
    if (!masked) continue;
    for (const auto& [id, tokens] : plain.outputs) {
      auto matcher = *Brackets()();
      for (int32_t token : tokens) ASSERT_TRUE(matcher->Accept(token)) << id.value();
    }
  }
  EXPECT_GT(accepted, 200u);
  EXPECT_GT(rejected, 50u);
  EXPECT_GT(preemptions, 10u);
  EXPECT_GT(hits, 100u);
}

INSTANTIATE_TEST_SUITE_P(Masks, GenerationWithDrafts,
                         testing::Combine(testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace pagemill
