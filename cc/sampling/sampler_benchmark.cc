// Time of a row of logits through the sampler, by the request's parameters. The limit is reading
// the row once: BM_ReadLimit of cc/ops/sample:sample_benchmark, 1.8 us for a vocabulary of 49,152.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/sampling/sampler.h"

namespace pagemill::sampling {
namespace {

constexpr int32_t kVocab = 49152;

struct Row {
  step::SamplingParams params;
  std::vector<uint32_t> mask;
  std::vector<float> draft_probabilities;
};

void RunRows(benchmark::State& state, const Row& row) {
  device::ThreadPool pool({.num_threads = 1});
  Sampler sampler(
      {.max_num_seqs = 1, .vocab_size = kVocab, .capabilities = device::DetectCapabilities()},
      &pool);
  auto request = std::make_shared<step::Request>();
  request->prompt_token_ids = {1};
  request->sampling = row.params;
  const step::RequestIndex index(0);
  sampler.Start(index, request, {}, !row.mask.empty());
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(rng);
  LogitsRow one = {.index = index, .logits = logits.data(), .mask = row.mask};
  if (!row.draft_probabilities.empty()) {
    one.draft_token_id = 17;
    one.draft_probabilities = row.draft_probabilities.data();
  }
  std::vector<RowOutput> out(1);
  for (auto _ : state) {
    sampler.Run({&one, 1}, out);
    benchmark::DoNotOptimize(out[0].token_id);
  }
}

step::SamplingParams Greedy() {
  step::SamplingParams p;
  p.temperature = 0.0f;
  return p;
}

step::SamplingParams TopP() {
  step::SamplingParams p;
  p.top_p = 0.95f;
  return p;
}

std::vector<uint32_t> Mask(uint32_t word) { return std::vector<uint32_t>(kVocab / 32, word); }

std::vector<float> Even() { return std::vector<float>(kVocab, 1.0f / kVocab); }

void BM_Greedy(benchmark::State& state) { RunRows(state, {.params = Greedy()}); }
void BM_Plain(benchmark::State& state) { RunRows(state, {}); }
void BM_TopP(benchmark::State& state) { RunRows(state, {.params = TopP()}); }
void BM_GreedyMaskOfAll(benchmark::State& state) {
  RunRows(state, {.params = Greedy(), .mask = Mask(~0u)});
}
void BM_GreedyMaskOfFew(benchmark::State& state) {
  std::vector<uint32_t> mask = Mask(0);
  mask[9] = 5;
  RunRows(state, {.params = Greedy(), .mask = mask});
}
void BM_GreedyMaskOfHalf(benchmark::State& state) {
  RunRows(state, {.params = Greedy(), .mask = Mask(0x5A5AA5A5u)});
}
void BM_PlainDrawnDraft(benchmark::State& state) {
  RunRows(state, {.draft_probabilities = Even()});
}
void BM_TopPDrawnDraft(benchmark::State& state) {
  RunRows(state, {.params = TopP(), .draft_probabilities = Even()});
}

// 128 greedy requests of which only maxima are known, not logits.
void BM_128Maxima(benchmark::State& state) {
  device::ThreadPool pool({.num_threads = 1});
  Sampler sampler({.max_num_seqs = 128, .vocab_size = kVocab}, &pool);
  auto request = std::make_shared<step::Request>();
  request->prompt_token_ids = {1};
  request->sampling = Greedy();
  const ops::RowMaximum maximum = {.logit = 1.0f, .column = 17};
  for (int32_t i = 0; i < 128; ++i) sampler.Start(step::RequestIndex(i), request, {});
  for (auto _ : state) {
    for (int32_t i = 0; i < 128; ++i) {
      benchmark::DoNotOptimize(sampler.TakeFound(step::RequestIndex(i), maximum).ok());
    }
  }
}

BENCHMARK(BM_128Maxima)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Greedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Plain)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopP)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_GreedyMaskOfAll)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_GreedyMaskOfFew)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_GreedyMaskOfHalf)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_PlainDrawnDraft)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopPDrawnDraft)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pagemill::sampling
