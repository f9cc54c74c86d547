// Microseconds of Schedule() + Update() per step, without any model, and memory. Target: 15 us with
// 256 decoding requests on one core. tools/bench/scheduler_vs_vllm runs another scheduler beside
// it.
//
//   ./bazelw run --config=release //cc/scheduler:scheduler_benchmark
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {
namespace {

using step::Request;
using step::RequestId;

constexpr int32_t kMaxModelLen = 1 << 21;

std::unique_ptr<Scheduler> MakeScheduler(int32_t num_seqs, int32_t num_blocks,
                                         int32_t max_waiting) {
  SchedulerOptions options;
  options.max_num_tokens = 16384;
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

// Times of the steps of one benchmark, in seconds. What is reported is their median: a step that
// another program interrupted does not count.
class StepTimes {
 public:
  // One step of which only Schedule() and Update() count, not the answer: that is the runner's
  // work.
  void Run(Scheduler* scheduler, step::StepPlan* plan, std::vector<RequestEvent>* events,
           benchmark::State& state) {
    const double start = CpuSeconds();
    scheduler->Schedule(plan);
    const double planned = CpuSeconds();
    step::StepResult result = Answer(*plan);
    events->clear();
    const double answered = CpuSeconds();
    PAGEMILL_CHECK(scheduler->Update(std::move(result), events).ok());
    const double updated = CpuSeconds();
    schedule_.push_back(planned - start);
    update_.push_back(updated - answered);
    num_entries_ += plan->scheduled.size();
    state.SetIterationTime(schedule_.back() + update_.back());
  }

  void Report(benchmark::State& state) {
    const auto steps = static_cast<double>(schedule_.size());
    state.counters["schedule_us"] = 1e6 * Median(&schedule_);
    state.counters["update_us"] = 1e6 * Median(&update_);
    state.counters["entries_per_step"] = static_cast<double>(num_entries_) / steps;
  }

 private:
  static double Median(std::vector<double>* values) {
    const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
    std::nth_element(values->begin(), middle, values->end());
    return *middle;
  }
  std::vector<double> schedule_, update_;
  size_t num_entries_ = 0;
};

void RunSteps(Scheduler* scheduler, benchmark::State& state) {
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  StepTimes times;
  for (auto _ : state) times.Run(scheduler, &plan, &events, state);
  times.Report(state);
}

void Warm(Scheduler* scheduler, int64_t steps) {
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  for (int64_t i = 0; i < steps; ++i) {
    scheduler->Schedule(&plan);
    if (plan.empty()) return;
    PAGEMILL_CHECK(scheduler->Update(Answer(plan), &events).ok());
    events.clear();
  }
}

// A scheduler whose range(0) requests decode, each with a context of range(1) tokens at the start.
std::unique_ptr<Scheduler> MakeDecoding(const benchmark::State& state, int32_t num_spare_seqs) {
  const auto num_seqs = static_cast<int32_t>(state.range(0));
  const auto context = static_cast<int32_t>(state.range(1));
  const int32_t blocks_each = context / 16 + 800;
  auto scheduler =
      MakeScheduler(num_seqs + num_spare_seqs, (num_seqs + num_spare_seqs) * blocks_each + 1, 0);
  for (int32_t i = 0; i < num_seqs; ++i) {
    PAGEMILL_CHECK(scheduler->Add(MakeRequest(i, context, 500000)).ok());
  }
  Warm(scheduler.get(), 2 + num_seqs * (int64_t{context} / 16384 + 1));
  PAGEMILL_CHECK(scheduler->stats().num_running == num_seqs);
  return scheduler;
}

void BM_Decode(benchmark::State& state) { RunSteps(MakeDecoding(state, 0).get(), state); }
BENCHMARK(BM_Decode)
    ->ArgNames({"seqs", "context"})
    ->Args({64, 256})
    ->Args({256, 256})
    ->Args({1024, 256})
    ->Args({256, 8192})
    ->Args({16, 256})
    ->Args({16, 1 << 16})
    ->Args({16, 1 << 20})
    ->Iterations(10000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// range(0) decoding requests and, in each step, 32 that begin: their prompts of range(1) tokens are
// new, hashed, looked up, given blocks and computed whole, and they end after their first token.
void BM_DecodeWithPrefills(benchmark::State& state) {
  constexpr int kPrefills = 32;
  const auto prompt_size = static_cast<int32_t>(state.range(1));
  auto scheduler = MakeDecoding(state, kPrefills);
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  StepTimes times;
  uint64_t id = 1000000;
  for (auto _ : state) {
    for (int i = 0; i < kPrefills; ++i) {
      PAGEMILL_CHECK(scheduler->Add(MakeRequest(++id, prompt_size, 1)).ok());
    }
    times.Run(scheduler.get(), &plan, &events, state);
  }
  times.Report(state);
}
BENCHMARK(BM_DecodeWithPrefills)
    ->ArgNames({"seqs", "context"})
    ->Args({224, 256})
    ->Iterations(3000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// 256 decoding requests while range(0) others wait for a slot.
void BM_DecodeWithQueue(benchmark::State& state) {
  const auto num_waiting = static_cast<int32_t>(state.range(0));
  auto scheduler = MakeScheduler(256, 256 * 700 + 1, num_waiting);
  for (int32_t i = 0; i < 256 + num_waiting; ++i) {
    PAGEMILL_CHECK(scheduler->Add(MakeRequest(i, 64, 500000)).ok());
  }
  Warm(scheduler.get(), 10);
  RunSteps(scheduler.get(), state);
}
BENCHMARK(BM_DecodeWithQueue)
    ->ArgName("waiting")
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
  StepTimes times;
  uint64_t id = 0;
  for (auto _ : state) {
    while (scheduler->stats().num_waiting < 32) {
      PAGEMILL_CHECK(scheduler->Add(MakeRequest(++id, 256, 32)).ok());
    }
    times.Run(scheduler.get(), &plan, &events, state);
  }
  times.Report(state);
}
BENCHMARK(BM_Turnover)->Iterations(3000)->UseManualTime()->Unit(benchmark::kMicrosecond);

#if defined(__GLIBC__)
double BytesInUse() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

// What a waiting request takes besides the tokens of its prompt.
void BM_MemoryPerWaitingRequest(benchmark::State& state) {
  constexpr int32_t kRequests = 100000, kPromptTokens = 64;
  for (auto _ : state) {
    auto scheduler = MakeScheduler(1, 1000, kRequests);
    const double before = BytesInUse();
    for (int32_t i = 0; i < kRequests; ++i) {
      PAGEMILL_CHECK(scheduler->Add(MakeRequest(i, kPromptTokens, 10)).ok());
    }
    const double each = (BytesInUse() - before) / kRequests;
    state.counters["bytes"] = each - kPromptTokens * sizeof(int32_t);
  }
}
BENCHMARK(BM_MemoryPerWaitingRequest)->Iterations(1)->Unit(benchmark::kMillisecond);

// What a block of the pool takes, and what it takes besides when the prefix cache knows it.
void BM_MemoryPerBlock(benchmark::State& state) {
  constexpr int32_t kBlocks = 100000;
  for (auto _ : state) {
    const double before = BytesInUse();
    auto scheduler = MakeScheduler(1, kBlocks, 1);
    const double created = BytesInUse();
    for (int32_t i = 0; i < 10; ++i) {  // one after the other; each leaves its blocks behind
      PAGEMILL_CHECK(scheduler->Add(MakeRequest(i, kBlocks / 10 * 16, 1)).ok());
      Warm(scheduler.get(), 1000);
    }
    const double filled = BytesInUse();
    PAGEMILL_CHECK(scheduler->Add(MakeRequest(9, kBlocks / 10 * 16, 1)).ok());
    Warm(scheduler.get(), 1);
    PAGEMILL_CHECK(scheduler->stats().prefix_cache_hit_tokens > 0);
    state.counters["bytes"] = (created - before) / kBlocks;
    state.counters["bytes_more_if_cached"] = (filled - created) / kBlocks;
  }
}
BENCHMARK(BM_MemoryPerBlock)->Iterations(1)->Unit(benchmark::kMillisecond);
#endif

}  // namespace
}  // namespace pagemill::scheduler
