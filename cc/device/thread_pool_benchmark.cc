// The cost of a ParallelFor beyond the work in it. The limit is one cache line moved to another
// core and one back: about 0.2 us between cores that share an L3.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/thread_pool.h"

namespace pagemill::device {
namespace {

// Args: threads, chunks.
void BM_EmptyParallelFor(benchmark::State& state) {
  ThreadPool pool({.num_threads = static_cast<int32_t>(state.range(0))});
  for (auto _ : state) {
    pool.ParallelFor(state.range(1), 1,
                     [](int64_t begin, int64_t, int) { benchmark::DoNotOptimize(begin); });
  }
}
BENCHMARK(BM_EmptyParallelFor)
    ->ArgsProduct({{1, 2}, {1, 2, 16, 32}})
    ->ArgNames({"threads", "chunks"})
    ->UseRealTime();

// Two chunks of equal work: the ratio to one thread shows the gain at this size. Args: threads,
// work in ns.
void BM_SharedWork(benchmark::State& state) {
  ThreadPool pool({.num_threads = static_cast<int32_t>(state.range(0))});
  const int64_t rounds = state.range(1);
  for (auto _ : state) {
    pool.ParallelFor(8, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t k = 0; k < rounds / 8; ++k) benchmark::DoNotOptimize(k);
      }
    });
  }
}
BENCHMARK(BM_SharedWork)
    ->ArgsProduct({{1, 2}, {2000, 10000, 100000}})
    ->ArgNames({"threads", "iterations"})
    ->UseRealTime();

// Processes that keep a core busy each while this exists.
class BusyProcesses {
 public:
  explicit BusyProcesses(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const pid_t pid = fork();
      PAGEMILL_CHECK(pid >= 0);
      if (pid == 0) {
        for (volatile int64_t spin = 0;;) spin = spin + 1;
      }
      pids_.push_back(pid);
    }
  }
  ~BusyProcesses() {
    for (pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> pids_;
};

void Work(int64_t rounds) {
  for (int64_t k = 0; k < rounds; ++k) benchmark::DoNotOptimize(k);
}

// Steps like those of a small model that produces one token: 180 loops of some 20 us on one thread,
// with 2 us between them in which only the caller works. Measures steps beside busy processes: the
// median, the 99th percentile, the longest. Args: threads, busy processes.
void BM_StepBesideBusyProcesses(benchmark::State& state) {
  constexpr int64_t kLoops = 180, kUnits = 64, kRoundsPerUnit = 1200, kRoundsAlone = 8000;
  ThreadPool pool({.num_threads = static_cast<int32_t>(state.range(0))});
  const BusyProcesses busy(state.range(1));
  std::vector<double> ms;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t loop = 0; loop < kLoops; ++loop) {
      pool.ParallelFor(
          kUnits, 1, [](int64_t begin, int64_t end, int) { Work((end - begin) * kRoundsPerUnit); });
      Work(kRoundsAlone);
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    ms.push_back(took.count());
  }
  std::sort(ms.begin(), ms.end());
  state.counters["p50_ms"] = ms[ms.size() / 2];
  state.counters["p99_ms"] = ms[ms.size() * 99 / 100];
  state.counters["longest_ms"] = ms.back();
  state.counters["attending"] = pool.num_attending();
}
BENCHMARK(BM_StepBesideBusyProcesses)
    ->ArgsProduct({{1, 2}, {0, 1, 2}})
    ->ArgNames({"threads", "busy"})
    ->Iterations(1000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::device
