// Speed of `depthwise_conv` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/depthwise_conv/depthwise_conv.h"

namespace pagemill::ops {
namespace {

void RunCall(benchmark::State& state, const std::string& kernel, int64_t taps, bool on_grid) {
  const int32_t tokens = static_cast<int32_t>(state.range(0));
  const int64_t channels = state.range(1);
  const std::vector<int32_t> starts = {0, tokens};
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t place : {0, t / 32, t % 32}) positions.push_back(place);
  }
  BatchView batch;
  batch.num_tokens = tokens;
  batch.num_requests = 1;
  batch.query_start = starts.data();
  batch.grid_positions = positions.data();
  BenchmarkCall call(DepthwiseConvOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.AddInput({tokens, channels});
  call.AddInput({channels, taps});
  call.AddInput({channels});
  call.AddOutput({tokens, channels});
  if (on_grid) {
    call.attributes().Set("grid", 1);
  } else {
    call.attributes().Set("before", static_cast<double>(taps / 2));
  }
  call.set_batch(&batch);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

void RunLine(benchmark::State& state, const std::string& kernel) {
  RunCall(state, kernel, 15, false);
}
void RunGrid(benchmark::State& state, const std::string& kernel) {
  RunCall(state, kernel, 9, true);
}

// Frames of Granite Speech, 10 s; an image of LFM3-VL.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("DepthwiseConv/Request", RunLine)) {
    b->ArgNames({"tokens", "channels", "threads"})->ArgsProduct({{500}, {2048}, {1, 2}});
  }
  for (auto* b : RegisterForKernels("DepthwiseConv/Grid", RunGrid)) {
    b->ArgNames({"tokens", "channels", "threads"})->ArgsProduct({{1024}, {1024}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
