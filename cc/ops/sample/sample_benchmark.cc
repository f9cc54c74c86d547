// Time of each row kernel on a vocabulary of 49,152 (SmolLM2) and 151,936 (Qwen2), next to the time
// of reading the row once at this machine's single-thread cache bandwidth (measured by a sum over
// the row).
#include <benchmark/benchmark.h>

#include <numeric>
#include <random>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/sample/philox.h"
#include "cc/ops/sample/sample.h"

namespace pagemill::ops {
namespace {

const RowPasses& Passes() {
  static const RowPasses& passes = ChooseRowPasses(device::DetectCapabilities());
  return passes;
}

std::vector<float> Row(int64_t n) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

void ReportBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * int64_t{sizeof(float)});
}

void BM_ReadLimit(benchmark::State& state) {
  const std::vector<float> x = Row(state.range(0));
  for (auto _ : state) {
    int32_t lanes[16] = {};
    for (size_t i = 0; i + 16 <= x.size(); i += 16) {
      for (int j = 0; j < 16; ++j) lanes[j] ^= reinterpret_cast<const int32_t*>(x.data())[i + j];
    }
    benchmark::DoNotOptimize(lanes);
  }
  ReportBytes(state);
}

void BM_ArgMax(benchmark::State& state) {
  const std::vector<float> x = Row(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ArgMax(Passes(), x));
  ReportBytes(state);
}

void BM_LogSumExp(benchmark::State& state) {
  const std::vector<float> x = Row(state.range(0));
  const float max = ArgMax(Passes(), x).logit;
  std::vector<Candidate> storage(x.size());
  for (auto _ : state) benchmark::DoNotOptimize(LogSumExp(Passes(), x, max, storage));
  ReportBytes(state);
}

void BM_Top20(benchmark::State& state) {
  const std::vector<float> x = Row(state.range(0));
  std::vector<Candidate> storage(x.size());
  for (auto _ : state) benchmark::DoNotOptimize(TopEntries(Passes(), x, 20, storage));
  ReportBytes(state);
}

void Draw(benchmark::State& state, DrawParams p) {
  const std::vector<float> x = Row(state.range(0));
  std::vector<Candidate> storage(x.size());
  const MaxEntry max = ArgMax(Passes(), x);
  uint64_t i = 0;
  for (auto _ : state) {
    p.uniform = PhiloxUniform(1, i++);
    benchmark::DoNotOptimize(DrawToken(Passes(), x, max, p, storage));
  }
  ReportBytes(state);
}

void BM_DrawPlain(benchmark::State& state) { Draw(state, {}); }
void BM_DrawTopK50(benchmark::State& state) { Draw(state, {.top_k = 50}); }
void BM_DrawTopP95(benchmark::State& state) { Draw(state, {.top_p = 0.95f}); }
void BM_DrawMinP5(benchmark::State& state) { Draw(state, {.min_weight = 0.05f}); }

#define PAGEMILL_VOCABULARIES Arg(49152)->Arg(151936)->Unit(benchmark::kMicrosecond)
BENCHMARK(BM_ReadLimit)->PAGEMILL_VOCABULARIES;
BENCHMARK(BM_ArgMax)->PAGEMILL_VOCABULARIES;
BENCHMARK(BM_LogSumExp)->PAGEMILL_VOCABULARIES;
BENCHMARK(BM_Top20)->PAGEMILL_VOCABULARIES;
BENCHMARK(BM_DrawPlain)->PAGEMILL_VOCABULARIES;
BENCHMARK(BM_DrawTopK50)->PAGEMILL_VOCABULARIES;
BENCHMARK(BM_DrawTopP95)->PAGEMILL_VOCABULARIES;
BENCHMARK(BM_DrawMinP5)->PAGEMILL_VOCABULARIES;

}  // namespace
}  // namespace pagemill::ops
