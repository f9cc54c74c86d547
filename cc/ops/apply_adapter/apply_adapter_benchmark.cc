// Speed of `apply_adapter` next to the multiply-adds of the machine (prompts) and to reading the
// matrices (single rows).
#include <benchmark/benchmark.h>

#include <utility>
#include <vector>

#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/ops/apply_adapter/packed_adapter.h"
#include "cc/ops/benchmark_call.h"
#include "cc/ops/conformance.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const int64_t rank = state.range(3);
  conformance::Random random(1);
  conformance::TestTensor y(DType::kF32, {rows, out}), x(DType::kF32, {rows, in});
  conformance::TestTensor a(DType::kBF16, {rank, in}), b(DType::kBF16, {out, rank});
  for (conformance::TestTensor* tensor : {&y, &x, &a, &b}) tensor->FillUniform(random, -1, 1);
  PackedAdapter adapter = std::move(
      *PackedAdapter::Make({.a = a.view(), .b = b.view(), .gain = {}, .offset = {}}, out, in));
  AdapterMatrices table = adapter.matrices();
  std::vector<int32_t> slots(static_cast<size_t>(rows), 0);
  const TensorView inputs[] = {x.view(), TensorView::Dense(slots.data(), DType::kI32, {rows}),
                               {}, {}, y.view(), TensorView::Dense(&table, DType::kI8, {out, in})};
  const TensorView outputs[] = {y.view()};  // in place, as programs do
  BenchmarkCall call(ApplyAdapterOp(), {kernel, static_cast<int32_t>(state.range(4))});
  call.Time(state,
            {.inputs = inputs, .outputs = outputs, .attributes = &call.attributes()});
  call.ReportOperations(state, 2.0 * static_cast<double>(rows * rank * (in + out)));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("ApplyAdapter", Run)) {
    b->ArgNames({"rows", "in", "out", "rank", "threads"})
        ->ArgsProduct({{1, 32, 1024}, {576}, {1536}, {8, 16, 64}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
