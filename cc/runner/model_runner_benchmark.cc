// What a step of a native runner costs besides the model: the plan becomes a batch, maxima become
// tokens. Decode steps of so many greedy requests, over an executor that does nothing. Counter:
// requests a second; a step of a small model on a few cores takes some 10 ms.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/runner/model_runner.h"

namespace pagemill::runner {
namespace {

constexpr int32_t kPromptTokens = 100;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kBlocks = 64;  // of a request

class IdleExecutor final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    maxima_.assign(static_cast<size_t>(batch.num_logits_rows), {.logit = 1.0f, .column = 3});
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    output->outputs = {};
    output->maxima = maxima_;
    return OkStatus();
  }

 private:
  std::vector<ops::RowMaximum> maxima_;
};

step::StepPlan StartAll(int32_t requests) {
  step::StepPlan plan;
  for (int32_t r = 0; r < requests; ++r) {
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = std::vector<int32_t>(kPromptTokens, 1);
    request->sampling.temperature = 0;
    step::ScheduledRequest& entry = plan.scheduled.emplace_back();
    entry.index = step::RequestIndex(r);
    entry.token_ids = request->prompt_token_ids.ToVector();
    entry.start = std::move(request);
    entry.sample = true;
    entry.new_block_ids.resize(1);
    for (int32_t b = 0; b < kBlocks; ++b) {
      entry.new_block_ids[0].push_back(step::BlockId(1 + r * kBlocks + b));
    }
  }
  return plan;
}

void Run(ModelRunner& runner, const step::StepPlan& plan) {
  Status status = runner.Execute(plan);
  if (status.ok()) status = runner.Sample();
  PAGEMILL_CHECK(status.ok());
  PAGEMILL_CHECK(runner.Collect().ok());
}

void DecodeSteps(benchmark::State& state) {
  const auto requests = static_cast<int32_t>(state.range(0));
  engine::RunnerLimits limits;
  limits.max_num_tokens = limits.max_num_seqs * kPromptTokens;
  limits.max_model_len = kBlocks * kBlockSize;
  limits.vocab_size = 49152;
  limits.block_size = kBlockSize;
  limits.num_blocks = 1 + requests * kBlocks;
  IdleExecutor executor;
  device::ThreadPool pool({.num_threads = 1});
  const auto runner = *ModelRunner::Create(&executor, &pool, limits);
  step::StepPlan plan = StartAll(requests);
  Run(*runner, plan);
  for (step::ScheduledRequest& entry : plan.scheduled) {
    entry.start = nullptr;
    entry.num_computed_tokens = kPromptTokens;
    entry.token_ids = {3};
    entry.new_block_ids.clear();
  }
  for (auto _ : state) Run(*runner, plan);
  state.SetItemsProcessed(state.iterations() * requests);
}

BENCHMARK(DecodeSteps)->Arg(1)->Arg(16)->Arg(128);

}  // namespace
}  // namespace pagemill::runner
