// Speed of `argmax` on logits of one request and of 32. Counter: bytes read a second.
#include <benchmark/benchmark.h>

#include "cc/device/thread_pool.h"
#include "cc/ops/argmax/argmax.h"
#include "cc/ops/conformance.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kVocab = 49152;

void RunArgmax(benchmark::State& state) {
  const int64_t rows = state.range(0);
  conformance::Random random(1);
  conformance::TestTensor x(DType::kF32, {rows, kVocab});
  conformance::TestTensor columns(DType::kI32, {rows}), values(DType::kF32, {rows});
  x.FillUniform(random, -1, 1);
  const Attributes attributes;
  const TensorView inputs[] = {x.view()}, outputs[] = {columns.view(), values.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context{&pool, {}};
  for (auto _ : state) {
    argmax::RunPortable(call, context);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * rows * kVocab * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(RunArgmax)->Arg(1)->Arg(32);

}  // namespace
}  // namespace pagemill::ops
