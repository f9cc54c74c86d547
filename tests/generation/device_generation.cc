#include "tests/generation/device_generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "cc/base/clock.h"
#include "cc/device/testing/test_device.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/engine.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/executor.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/native_executor.h"
#include "cc/runner/model_runner.h"
#include "cc/sampling/ngram_proposer.h"
#include "cc/step/token_mask.h"
#include "cc/step/token_matcher.h"

namespace pagemill::testing {
namespace {

using device::testing::TestDevice;
using program::DeviceExecutor;
using program::NativeExecutor;
using program::Program;

constexpr int32_t kMaxModelLen = 64;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kMaxDrafts = 4;
constexpr int32_t kTokenIds = 64;  // ids below this are in every model's vocabulary

// Counts the overlapping steps of an executor.
class Observed final : public program::Executor {
 public:
  Observed(program::Executor* executor, Generated* counts)
      : Executor(executor->max_steps_in_flight(), executor->samples()),
        executor_(executor),
        counts_(counts) {}

  Status Enqueue(const ops::StepBatch& batch) override {
    PAGEMILL_RETURN_IF_ERROR(executor_->Enqueue(batch));
    ++counts_->num_steps;
    counts_->num_overlapping_steps += in_flight_++ > 0;
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    --in_flight_;
    return executor_->Collect(output);
  }
  Status Sample(const program::StepDraws& draws) override {
    ++counts_->num_sampled_steps;
    for (const ops::RowPenalties& row : draws.penalties) {
      counts_->num_penalized_behind_drafts += row.num_drafts > 0;
    }
    return executor_->Sample(draws);
  }

 private:
  program::Executor* const executor_;
  Generated* const counts_;
  int32_t in_flight_ = 0;
};

program::ExecutorOptions Options(const DeviceRun& run) {
  program::ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 48;
  options.max_num_seqs = 5;
  options.max_num_logits_rows = 20;
  options.block_size = kBlockSize;
  options.num_blocks = run.num_blocks;
  options.activation_type = run.act;
  options.kv_cache_dtype = run.kv_cache;
  options.max_draft_tokens = run.drafts ? kMaxDrafts : 0;
  return options;
}

engine::RunnerLimits LimitsOf(const Program& program, const program::KvLayout& layout,
                              const program::ExecutorOptions& options, int32_t vocab_size) {
  engine::RunnerLimits limits;
  limits.max_num_tokens = options.max_num_tokens;
  limits.max_num_seqs = options.max_num_seqs;
  limits.max_num_logits_rows = options.max_num_logits_rows;
  limits.max_model_len = kMaxModelLen;
  limits.vocab_size = vocab_size;
  limits.num_blocks = options.num_blocks;
  limits.block_size = options.block_size;
  limits.kv_groups = program::KvGroupsOf(program, layout);
  return limits;
}

Status RunRequests(const std::vector<step::Request>& requests, int32_t steps_in_flight,
                   runner::ModelRunner* runner, Generated* generated) {
  SteadyClock clock;
  engine::EngineOptions options;
  options.max_in_flight_steps = steps_in_flight;
  options.check_integrity = true;
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine,
                            engine::Engine::Create(options, runner, &clock, {}));
  size_t unfinished = requests.size();
  for (const step::Request& request : requests) PAGEMILL_RETURN_IF_ERROR(engine->Submit(request));
  Status failure;
  while (unfinished > 0) {
    for (engine::RequestOutput& output : engine->Wait(10)) {
      std::vector<int32_t>& tokens = generated->outputs[output.request_id];
      tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
      if (output.logprobs) {
        std::vector<step::TokenLogprobs>& logprobs = generated->logprobs[output.request_id];
        logprobs.insert(logprobs.end(), output.logprobs->begin(), output.logprobs->end());
      }
      if (output.prompt_logprobs) {
        generated->prompt_logprobs[output.request_id] = *std::move(output.prompt_logprobs);
      }
      unfinished -= output.finished();
      if (failure.ok()) failure = output.error;
    }
  }
  generated->stats = engine->stats();
  engine->Shutdown();
  runner->CheckIntegrity();
  return failure;
}

// Allows two of three tokens, different ones each time.
class TwoOfThree final : public step::TokenMatcher {
 public:
  Status FillMask(std::span<uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0u);
    const auto num_tokens = static_cast<int32_t>(mask.size()) * step::kTokensPerMaskWord;
    for (int32_t t = 0; t < num_tokens; ++t) {
      if (Allows(t)) step::AllowToken(mask, t);
    }
    return OkStatus();
  }
  bool Accept(int32_t token_id) override {
    if (!Allows(token_id)) return false;
    ++num_accepted_;
    return true;
  }
  void Rollback(int32_t num_tokens) override { num_accepted_ -= num_tokens; }

 private:
  bool Allows(int32_t token_id) const { return token_id % 3 != num_accepted_ % 3; }

  int32_t num_accepted_ = 0;
};

StatusOr<std::unique_ptr<step::TokenMatcher>> NewTwoOfThree() {
  return std::unique_ptr<step::TokenMatcher>(std::make_unique<TwoOfThree>());
}

void ExpectClose(const step::TokenLogprobs& got, const step::TokenLogprobs& expected, float bound) {
  EXPECT_EQ(got.token_id, expected.token_id);
  EXPECT_NEAR(got.logprob, expected.logprob, bound);
  ASSERT_EQ(got.top.size(), expected.top.size());
  for (size_t i = 0; i < got.top.size(); ++i) {
    EXPECT_NEAR(got.top[i].second, expected.top[i].second, bound);
  }
  if (bound > 0) return;
  EXPECT_EQ(got.rank, expected.rank);
  EXPECT_EQ(got.top, expected.top);
}

using LogprobsById = std::map<step::RequestId, std::vector<step::TokenLogprobs>>;

void ExpectAllClose(const LogprobsById& got, const LogprobsById& expected, float bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [id, of_request] : expected) {
    SCOPED_TRACE(::testing::Message() << "request " << id.value());
    const std::vector<step::TokenLogprobs>& of_got = got.at(id);
    ASSERT_EQ(of_got.size(), of_request.size());
    for (size_t i = 0; i < of_request.size(); ++i) ExpectClose(of_got[i], of_request[i], bound);
  }
}

}  // namespace

std::vector<step::Request> GreedyRequests(uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<step::Request> requests(9);
  for (size_t i = 0; i < requests.size(); ++i) {
    step::Request& request = requests[i];
    request.id = step::RequestId(i + 1);
    for (uint64_t n = 1 + rng() % 30; n > 0; --n) {
      request.prompt_token_ids.push_back(static_cast<int32_t>(rng() % kTokenIds));
    }
    request.sampling.temperature = 0;
    request.sampling.max_tokens = static_cast<int32_t>(1 + rng() % 24);
    for (int stop = 0; i % 2 == 0 && stop < 10; ++stop) {
      request.sampling.stop_token_ids.push_back(static_cast<int32_t>(rng() % kTokenIds));
    }
  }
  return requests;
}

std::vector<step::Request> SampledRequests(uint64_t seed) {
  std::vector<step::Request> requests = GreedyRequests(seed);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 4 == 3) requests[i].new_token_matcher = NewTwoOfThree;
    step::SamplingParams& sampling = requests[i].sampling;
    if (i % 5 == 0) sampling.repetition_penalty = 1.4f;
    if (i % 5 < 2) sampling.frequency_penalty = 0.3f;
    if (i % 5 == 2) sampling.logit_bias = {{3, 2.0f}, {static_cast<int32_t>(i), -1.0f}};
    if (i % 2 == 0) sampling.min_tokens = std::min(sampling.max_tokens, 5);
    if (i % 3 > 0 || i % 4 == 3) sampling.logprobs = static_cast<int32_t>(i) - 1;
    if (i % 4 == 0 || i % 4 == 3) sampling.prompt_logprobs = static_cast<int32_t>(i);
    if (i % 3 == 0) continue;
    sampling.temperature = 0.4f + 0.2f * static_cast<float>(i);
    sampling.seed = seed << 35 | i;
    if (i % 4 == 1) sampling.top_k = 20;
    if (i % 4 < 2) sampling.top_p = 0.9f;
    if (i % 4 == 2) sampling.min_p = 0.02f;
  }
  return requests;
}

void ExpectLogprobs(const Generated& got, const Generated& expected, float bound) {
  EXPECT_FALSE(expected.logprobs.empty());
  EXPECT_FALSE(expected.prompt_logprobs.empty());
  ExpectAllClose(got.logprobs, expected.logprobs, bound);
  ExpectAllClose(got.prompt_logprobs, expected.prompt_logprobs, bound);
}

StatusOr<Generated> Generate(const std::string& text, const std::vector<step::Request>& requests,
                             const DeviceRun& run) {
  const program::ExecutorOptions options = Options(run);
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(run.act));
  const std::optional<program::ValueId> logits = program.FindOutput(program::kLogits);
  if (!logits) return InvalidArgument("the program has no logits");
  const auto vocab_size = static_cast<int32_t>(program.value(*logits).shape.RowElements());
  Generated generated;
  TestDevice test_device;
  const program::testing::DeviceUnderTest own = {
      .target = {.ops = ops::testing::TestDeviceOps()},
      .device = test_device,
      .num_replays = [&] { return test_device.num_replays(); }};
  const program::testing::DeviceUnderTest& device = run.device == nullptr ? own : *run.device;
  const int64_t replays_before = device.num_replays();
  device::ThreadPool pool({.num_threads = 1});
  std::unique_ptr<program::Executor> executor;
  engine::RunnerLimits limits;
  if (run.steps_in_flight == 0) {
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> cpu,
                              NativeExecutor::Create(program, {.ops = ops::CpuOps()}, options));
    limits = LimitsOf(cpu->program(), cpu->memory_plan().kv, options, vocab_size);
    executor = std::move(cpu);
  } else {
    const program::DeviceExecutorOptions device_options = {
        .max_blocks = kMaxDrafts + 1 + kMaxModelLen / kBlockSize,
        .max_steps_in_flight = run.steps_in_flight,
        .max_graph_tokens = run.graphs ? options.max_num_tokens : 0,
        .token_columns = vocab_size};
    PAGEMILL_ASSIGN_OR_RETURN(
        std::unique_ptr<DeviceExecutor> on_device,
        DeviceExecutor::Create(program, device.target, device.device, options, device_options));
    limits = LimitsOf(on_device->program(), on_device->kv_layout(), options, vocab_size);
    executor = std::move(on_device);
  }
  Observed observed(executor.get(), &generated);
  const FakeClock no_time;  // drafts are free: as many as the proposer has are used
  runner::ModelRunnerParts parts = {.clock = &no_time};
  if (run.drafts) {
    limits.max_draft_tokens = kMaxDrafts;
    parts.proposer = std::make_unique<sampling::NgramProposer>(
        sampling::NgramProposerOptions{.max_num_seqs = limits.max_num_seqs, .min_n = 1});
  }
  PAGEMILL_ASSIGN_OR_RETURN(
      std::unique_ptr<runner::ModelRunner> runner,
      runner::ModelRunner::Create(&observed, &pool, limits, std::move(parts)));
  PAGEMILL_RETURN_IF_ERROR(
      RunRequests(requests, std::max(1, run.steps_in_flight), runner.get(), &generated));
  generated.num_replays = device.num_replays() - replays_before;
  return generated;
}

}  // namespace pagemill::testing
