// Speed of `scatter_rows` in place, as executors run it: the embeddings of an image of 576 patches
// among 640 tokens, and of none. Counter: bytes copied a second.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/scatter_rows/scatter_rows.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kTokens = 640;
constexpr int64_t kHidden = 4096;

void RunScatterRows(benchmark::State& state) {
  const int64_t n = state.range(0);
  conformance::Random random(1);
  conformance::TestTensor x(DType::kF32, {kTokens, kHidden});
  conformance::TestTensor y(DType::kF32, {n, kHidden});
  conformance::TestTensor rows(DType::kI32, {n});
  x.FillUniform(random, -1, 1);
  y.FillUniform(random, -1, 1);
  std::vector<int32_t> indices(static_cast<size_t>(n));
  std::iota(indices.begin(), indices.end(), 5);
  rows.SetInt(indices);
  const Attributes attributes;
  const TensorView inputs[] = {x.view(), y.view(), rows.view()};
  const TensorView outputs[] = {x.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context{&pool, {}};
  for (auto _ : state) {
    scatter_rows::RunPortable(call, context);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * kHidden * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(RunScatterRows)->Arg(0)->Arg(576);

}  // namespace
}  // namespace pagemill::ops
