// Seconds of wall time for 100,000 requests (512 tokens in and 128 out in the mean) on one, ten and
// 1,000 engines. Target: a minute for 1,000 engines on two cores; this uses one.
//
//   ./bazelw run --config=release //cc/sim:simulator_benchmark
#include <memory>
#include <utility>

#include "benchmark/benchmark.h"
#include "cc/sim/simulator.h"
#include "cc/sim/synthetic_workload.h"

namespace pagemill::sim {
namespace {

constexpr int64_t kNumRequests = 100000;

// Llama 3.1 8B on an H100.
SimulatorOptions Options(int32_t num_engines) {
  SimulatorOptions options;
  options.num_engines = num_engines;
  options.routing = "prefix_aware";
  options.model = {32, 4096, 32, 8, 128, 14336, 3, 128256, 0, 16};
  options.device = {989400000000000, 3350000000000, 600, 800, 500000};
  options.scheduler.max_num_tokens = 8192;
  options.scheduler.max_num_seqs = 256;
  options.scheduler.max_num_logits_rows = 256;
  options.scheduler.max_model_len = 32768;
  options.scheduler.max_waiting_requests = kNumRequests;
  options.scheduler.kv_cache.num_blocks = 25000;
  return options;
}

void BM_Requests(benchmark::State& state) {
  const auto num_engines = static_cast<int32_t>(state.range(0));
  for (auto _ : state) {
    SyntheticOptions load;
    load.num_requests = kNumRequests;
    load.vocab_size = 128256;
    load.arrivals.mean_gap_ns = 50000000 / num_engines;  // 20 requests a second for each engine
    load.prefix_tokens = 128;
    load.num_prefixes = 64;
    auto simulator =
        Simulator::Create(Options(num_engines), std::make_unique<SyntheticWorkload>(load));
    PAGEMILL_CHECK(simulator.ok());
    PAGEMILL_CHECK((*simulator)->Run(kNumRequests).ok());
    const Report& report = (*simulator)->report();
    PAGEMILL_CHECK(report.num_finished == kNumRequests);
    state.counters["steps"] = static_cast<double>(report.num_steps);
    state.counters["tokens"] = static_cast<double>(report.step_tokens);
  }
}
BENCHMARK(BM_Requests)->Arg(1)->Arg(10)->Arg(1000)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace pagemill::sim
