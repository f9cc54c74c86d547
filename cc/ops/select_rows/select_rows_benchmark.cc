// Speed of `select_rows`: one row of each of 32 requests of a step of 512 tokens, and all rows.
// Counter: bytes read a second; the limit is a memcpy of as many bytes (`copy`).
#include <benchmark/benchmark.h>

#include <cstring>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/select_rows/select_rows.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kTokens = 512;
constexpr int64_t kHidden = 576;

void RunSelectRows(benchmark::State& state, bool copy_only) {
  const int64_t n = state.range(0);
  conformance::Random random(1);
  conformance::TestTensor x(DType::kF32, {kTokens, kHidden});
  conformance::TestTensor rows(DType::kI32, {n});
  conformance::TestTensor y(DType::kF32, {n, kHidden});
  x.FillUniform(random, -1, 1);
  rows.FillUniform(random, 0, kTokens - 1);
  const Attributes attributes;
  const TensorView inputs[] = {x.view(), rows.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context{&pool, {}};
  for (auto _ : state) {
    if (copy_only) {
      std::memcpy(y.view().data, x.view().data, n * kHidden * sizeof(float));
    } else {
      select_rows::RunPortable(call, context);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * kHidden * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK_CAPTURE(RunSelectRows, select_rows, false)->Arg(1)->Arg(32)->Arg(512);
BENCHMARK_CAPTURE(RunSelectRows, copy, true)->Arg(1)->Arg(32)->Arg(512);

}  // namespace
}  // namespace pagemill::ops
