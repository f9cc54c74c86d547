// Speed of `attention`, bidirectional, next to the multiply-add peak (`of_peak`; 4 D operations for
// each query head and visible key): sentences, and the images of vision transformers.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/ops/attention/attention.h"
#include "cc/ops/benchmark_call.h"

namespace pagemill::ops {
namespace {

struct Shape {
  int32_t requests, tokens;
  int64_t heads, dim;
  int32_t grid_window = 0;
};
// MiniLM: a prompt and a batch of sentences; CLIP ViT-L/14 at 336 pixels; 64 x 64 patches of
// Qwen2.5-VL, in its few layers without windows and in the others.
constexpr Shape kShapes[] = {
    {1, 256, 12, 32}, {32, 32, 12, 32}, {1, 577, 16, 64}, {1, 4096, 16, 80}, {1, 4096, 16, 80, 8}};

// Of tokens that fill one window after the other.
std::vector<int32_t> GridPositions(int32_t tokens, int32_t side) {
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < tokens; ++t) {
    positions.insert(positions.end(), {0, t / side, t % side});
  }
  return positions;
}

void Run(benchmark::State& state, const std::string& kernel) {
  const Shape& shape = kShapes[state.range(0)];
  const int32_t tokens = shape.requests * shape.tokens;
  std::vector<int32_t> query_start;
  for (int32_t r = 0; r <= shape.requests; ++r) query_start.push_back(r * shape.tokens);
  const int32_t side = shape.grid_window;
  const std::vector<int32_t> positions = GridPositions(tokens, std::max(side, 1));
  const BatchView batch{{.num_tokens = tokens,
                         .num_requests = shape.requests,
                         .query_start = query_start.data(),
                         .grid_positions = positions.data()},
                        {}};
  BenchmarkCall call(AttentionOp(), {kernel, static_cast<int32_t>(state.range(1))});
  for (int i = 0; i < 3; ++i) call.AddInput({tokens, shape.heads, shape.dim});
  call.AddOutput({tokens, shape.heads, shape.dim});
  call.attributes().Set("scale", 0.125);
  call.attributes().Set("causal", 0);
  call.attributes().Set("grid_window", side);
  call.set_batch(&batch);
  call.Time(state);
  const int32_t seen = side > 0 ? side * side : shape.tokens;
  call.ReportOperations(state, 4.0 * tokens * seen * static_cast<double>(shape.heads * shape.dim));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const char* kernel : {"amx_bf16", "avx512_bf16", "avx512", "avx2", "portable"}) {
    const std::string name = kernel;
    benchmark::RegisterBenchmark(("Attention/" + name).c_str(), Run, name)
        ->UseRealTime()
        ->ArgNames({"shape", "threads"})
        ->ArgsProduct({{0, 1, 2, 3, 4}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
