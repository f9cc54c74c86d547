// What a decode step costs the host besides the model and the device: the engine's thread plans,
// builds the batch, takes tokens that an executor has found, and hands them to a client that reads
// them all along. CPU time of that thread for a step of so many requests, greedy, drawn with a
// penalty or with the log probabilities of five tokens, over an executor that does nothing and has
// two steps in flight, as a device's has.
// Counters: the parts of that time, in microseconds of the clock (step_times.h), so that the mutex
// and the reader's wake-ups count too.
#include <benchmark/benchmark.h>
#include <time.h>

#include <memory>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/engine.h"
#include "cc/engine/engine_options.h"
#include "cc/engine/request_output.h"
#include "cc/engine/runner.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/row_maxima.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/program/executor.h"
#include "cc/runner/model_runner.h"
#include "cc/step/request.h"

namespace pagemill {
namespace {

constexpr int32_t kPromptTokens = 1;
constexpr int32_t kOutputTokens = 256;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kBlocks = (kPromptTokens + kOutputTokens) / kBlockSize + 1;  // of a request
constexpr double kWaitSeconds = 10;

double ThreadSeconds() {
  timespec now;
  PAGEMILL_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Finds the same token in all rows of a step. Notes the times of the first and the last step.
class IdleExecutor final : public program::Executor {
 public:
  IdleExecutor() : Executor(/*max_steps_in_flight=*/2, /*samples=*/true) {}

  Status Enqueue(const ops::StepBatch& batch) override {
    last_s_ = ThreadSeconds();
    if (num_steps_++ == 0) first_s_ = last_s_;
    const ops::RowMaximum found{.logit = 1.0f, .column = num_steps_};
    rows_in_flight_[num_steps_ % 2].assign(static_cast<size_t>(batch.num_logits_rows), found);
    scores_in_flight_[num_steps_ % 2].clear();
    return OkStatus();
  }
  Status Sample(const program::StepDraws& draws) override {
    scores_in_flight_[num_steps_ % 2].resize(draws.scored.size());
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    output->outputs = {};
    output->maxima = rows_in_flight_[++num_collected_ % 2];
    output->scores = scores_in_flight_[num_collected_ % 2];
    return OkStatus();
  }

  // Seconds of one step, on average since the last call.
  double TakeStepSeconds() {
    const double seconds = (last_s_ - first_s_) / (num_steps_ - 1);
    num_steps_ = num_collected_ = 0;
    return seconds;
  }

 private:
  int num_steps_ = 0;
  int num_collected_ = 0;
  double first_s_ = 0, last_s_ = 0;
  std::vector<ops::RowMaximum> rows_in_flight_[2];
  std::vector<ops::TokenScores> scores_in_flight_[2];
};

void Generate(engine::Engine& engine, int32_t requests, const step::SamplingParams& sampling) {
  engine.Pause(scheduler::PauseMode::kKeep);
  for (int32_t r = 0; r < requests; ++r) {
    step::Request request;
    request.id = step::RequestId(static_cast<uint64_t>(r) + 1);
    request.prompt_token_ids = std::vector<int32_t>(kPromptTokens, 1);
    request.sampling = sampling;
    PAGEMILL_CHECK(engine.Submit(std::move(request)).ok());
  }
  engine.Resume();
  for (int32_t left = requests; left > 0;) {
    const std::vector<engine::RequestOutput> outputs = engine.Wait(kWaitSeconds);
    PAGEMILL_CHECK(!outputs.empty());
    for (const engine::RequestOutput& output : outputs) left -= output.finished();
  }
}

void DecodeSteps(benchmark::State& state, const step::SamplingParams& sampling) {
  const auto requests = static_cast<int32_t>(state.range(0));
  engine::RunnerLimits limits;
  limits.max_num_tokens = limits.max_num_seqs = limits.max_num_logits_rows = requests;
  limits.max_model_len = kBlocks * kBlockSize;
  limits.vocab_size = 49152;
  limits.block_size = kBlockSize;
  limits.num_blocks = 1 + requests * kBlocks;
  engine::EngineOptions options;
  options.max_in_flight_steps = 2;
  options.enable_prefix_caching = false;
  IdleExecutor executor;
  device::ThreadPool pool({.num_threads = 1});
  SteadyClock clock;
  const auto model_runner = *runner::ModelRunner::Create(&executor, &pool, limits);
  const auto engine = *engine::Engine::Create(options, model_runner.get(), &clock, {});
  model_runner->SetProfiling(true);
  for (auto _ : state) {
    Generate(*engine, requests, sampling);
    PAGEMILL_CHECK(engine->WaitIdle(kWaitSeconds));
    state.SetIterationTime(executor.TakeStepSeconds());
  }
  const runner::StepTimes times = model_runner->Profile(program::StepKind::kDecode);
  const auto micros = [&](double seconds) { return 1e6 * seconds / double(times.steps); };
  state.counters["batch"] = micros(times.batch_s);
  state.counters["sampling"] = micros(times.sampling_s);
  state.counters["between"] = micros(times.between_s);
  state.counters["model"] = micros(times.model_s);
}

step::SamplingParams Greedy() { return {.temperature = 0, .max_tokens = kOutputTokens}; }
step::SamplingParams Penalized() {
  return {.temperature = 0.7f, .repetition_penalty = 1.1f, .max_tokens = kOutputTokens};
}
step::SamplingParams Scored() {
  return {.temperature = 0, .max_tokens = kOutputTokens, .logprobs = 5};
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1)->Arg(64)->Arg(256)->Iterations(4)->UseManualTime();
  benchmark->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(DecodeSteps, greedy, Greedy())->Apply(Sizes);
BENCHMARK_CAPTURE(DecodeSteps, penalized, Penalized())->Apply(Sizes);
BENCHMARK_CAPTURE(DecodeSteps, scored, Scored())->Apply(Sizes);

}  // namespace
}  // namespace pagemill
