// What a ParallelFor costs beyond the work in it. The limit is one cache line handed to another
// core and one handed back: about 0.2 us between cores that share an L3.
#include <benchmark/benchmark.h>

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

// Two chunks of equal work: the ratio to one thread shows what sharing yields at this size.
// Args: threads, work in ns.
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

}  // namespace
}  // namespace pagemill::device
