// Microseconds of Schedule() + Update() per step, without any model. Target: 20 us with 256
// decoding requests on one core.
//
//   ./bazelw run --config=release //cc/scheduler:scheduler_benchmark
#include <time.h>

#include <memory>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {
namespace {

using step::Request;
using step::RequestId;

constexpr int32_t kMaxModelLen = 1 << 20;

std::unique_ptr<Scheduler> MakeScheduler(int32_t num_seqs, int32_t num_blocks,
                                         int32_t max_waiting) {
  SchedulerOptions options;
  options.max_num_tokens = 8192;
  options.max_num_seqs = num_seqs;
  options.max_num_logits_rows = num_seqs;
  options.max_model_len = kMaxModelLen;
  options.vocab_size = 50000;
  options.max_waiting_requests = max_waiting;
  options.kv_cache.num_blocks = num_blocks;
  return std::move(*Scheduler::Create(options));
}

Request MakeRequest(uint64_t id, int32_t prompt_size, int32_t max_tokens) {
  Request request;
  request.id = RequestId(id);
  for (int32_t i = 0; i < prompt_size; ++i) {
    request.prompt_token_ids.push_back(static_cast<int32_t>((id * 7919 + i * 31) % 50000));
  }
  request.sampling.max_tokens = max_tokens;
  request.sampling.eos_token_ids = {2};
  return request;
}

// What a runner would answer: a token for each entry that asks for one.
step::StepResult Answer(const step::StepPlan& plan) {
  step::StepResult result;
  result.step_id = plan.step_id;
  result.results.resize(plan.scheduled.size());
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    result.results[i].index = plan.scheduled[i].index;
    if (plan.scheduled[i].sample) result.results[i].sampled_token_ids = {7};
  }
  return result;
}

// CPU time of this thread in seconds: does not count what other programs on the machine take.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One step of which only Schedule() and Update() count, not the answer, which is the runner's work.
void TimedStep(Scheduler* scheduler, step::StepPlan* plan, std::vector<RequestEvent>* events,
               benchmark::State& state) {
  const double start = CpuSeconds();
  scheduler->Schedule(plan);
  const double planned = CpuSeconds();
  step::StepResult result = Answer(*plan);
  events->clear();
  const double answered = CpuSeconds();
  scheduler->Update(std::move(result), events);
  const double updated = CpuSeconds();
  state.SetIterationTime((planned - start) + (updated - answered));
}

void RunSteps(Scheduler* scheduler, benchmark::State& state) {
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  int64_t entries = 0;
  for (auto _ : state) {
    TimedStep(scheduler, &plan, &events, state);
    entries += static_cast<int64_t>(plan.scheduled.size());
  }
  state.counters["entries_per_step"] =
      benchmark::Counter(static_cast<double>(entries), benchmark::Counter::kAvgIterations);
}

void Warm(Scheduler* scheduler, int steps) {
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  for (int i = 0; i < steps; ++i) {
    scheduler->Schedule(&plan);
    if (plan.empty()) return;
    scheduler->Update(Answer(plan), &events);
    events.clear();
  }
}

// range(0) requests decode, each with a context of range(1) tokens at the start.
void BM_Decode(benchmark::State& state) {
  const auto num_seqs = static_cast<int32_t>(state.range(0));
  const auto context = static_cast<int32_t>(state.range(1));
  const int32_t blocks_each = context / 16 + 700;
  auto scheduler = MakeScheduler(num_seqs, num_seqs * blocks_each + 1, 0);
  for (int32_t i = 0; i < num_seqs; ++i) {
    PM_CHECK(scheduler->Add(MakeRequest(i, context, 500000)).ok());
  }
  Warm(scheduler.get(), 2 + static_cast<int>(int64_t{num_seqs} * context / 8192));
  RunSteps(scheduler.get(), state);
}
BENCHMARK(BM_Decode)
    ->Args({256, 256})
    ->Args({1024, 256})
    ->Args({256, 8192})
    ->Args({16, 262144})
    ->Iterations(10000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// 256 decoding requests while range(0) others wait for a slot.
void BM_DecodeWithQueue(benchmark::State& state) {
  const auto num_waiting = static_cast<int32_t>(state.range(0));
  auto scheduler = MakeScheduler(256, 256 * 700 + 1, num_waiting);
  for (int32_t i = 0; i < 256 + num_waiting; ++i) {
    PM_CHECK(scheduler->Add(MakeRequest(i, 64, 500000)).ok());
  }
  Warm(scheduler.get(), 10);
  RunSteps(scheduler.get(), state);
}
BENCHMARK(BM_DecodeWithQueue)
    ->Arg(0)
    ->Arg(1000)
    ->Arg(100000)
    ->Iterations(5000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Requests come and go: 256 slots, prompts of 256 tokens, 32 tokens each.
void BM_Turnover(benchmark::State& state) {
  auto scheduler = MakeScheduler(256, 256 * 40, 1000);
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  uint64_t id = 0;
  for (auto _ : state) {
    while (scheduler->stats().num_waiting < 32) {
      PM_CHECK(scheduler->Add(MakeRequest(++id, 256, 32)).ok());
    }
    TimedStep(scheduler.get(), &plan, &events, state);
  }
}
BENCHMARK(BM_Turnover)->Iterations(3000)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pagemill::scheduler
