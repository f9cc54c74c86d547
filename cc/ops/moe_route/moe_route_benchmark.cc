// Speed of `moe_route` at the sizes of Mixtral and Qwen3-30B-A3B, in tokens a second
// (items_per_second).
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/moe_route/moe_route.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0), experts = state.range(1), choices = state.range(2);
  BenchmarkCall call(MoeRouteOp(), {"portable", static_cast<int32_t>(state.range(3))});
  conformance::TestTensor logits(DType::kF32, {tokens, experts});
  conformance::TestTensor ids(DType::kI32, {tokens, choices}),
      weights(DType::kF32, {tokens, choices});
  conformance::Random random(1);
  logits.FillUniform(random, -5, 5);
  const TensorView inputs[] = {logits.view(), {}};
  const TensorView outputs[] = {ids.view(), weights.view()};
  call.attributes().Set("choices", static_cast<double>(choices));
  call.attributes().Set("scoring", 0);
  call.attributes().Set("renormalize", 1);
  call.Time(state, {inputs, outputs, &call.attributes(), nullptr});
  state.SetItemsProcessed(state.iterations() * tokens);
}

BENCHMARK(Run)
    ->Name("MoeRoute")
    ->ArgNames({"tokens", "experts", "choices", "threads"})
    ->ArgsProduct({{1, 32, 512}, {8}, {2}, {1, 2}})
    ->ArgsProduct({{1, 32, 512}, {128}, {8}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
