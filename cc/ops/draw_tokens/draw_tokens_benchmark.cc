// Speed of `draw_tokens` on logits of one request and of 32, one thread: with a temperature alone,
// and with top_k 50 and top_p 0.95. Counter: bytes of logits a second.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/draw_tokens/draw_tokens.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/sample.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kVocab = 49152;

void RunDrawTokens(benchmark::State& state, RowDraw draw) {
  const int64_t rows = state.range(0);
  conformance::Random random(1);
  std::vector<float> x, values;
  std::vector<int32_t> columns, words(static_cast<size_t>(rows * kRowDrawWords));
  for (int64_t i = 0; i < rows * kVocab; ++i) x.push_back(3.0f * random.Normal());
  for (int64_t row = 0; row < rows; ++row) {
    const MaxEntry max =
        reference::ArgMax({&x[static_cast<size_t>(row * kVocab)], static_cast<size_t>(kVocab)});
    columns.push_back(max.token_id);
    values.push_back(max.logit);
    draw.position = static_cast<int32_t>(row);
    std::memcpy(&words[static_cast<size_t>(row * kRowDrawWords)], &draw, sizeof(draw));
  }
  std::vector<int32_t> drawn(columns.size());
  const TensorView inputs[] = {TensorView::Dense(x.data(), DType::kF32, {rows, kVocab}),
                               TensorView::Dense(columns.data(), DType::kI32, {rows}),
                               TensorView::Dense(values.data(), DType::kF32, {rows}),
                               TensorView::Dense(words.data(), DType::kI32, {rows, kRowDrawWords})};
  const TensorView outputs[] = {TensorView::Dense(drawn.data(), DType::kI32, {rows})};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  const Kernel& kernel = **ChooseKernel(DrawTokensOp(), device::DetectCapabilities(), call);
  device::ThreadPool pool({.num_threads = 1});
  std::vector<std::byte> workspace(static_cast<size_t>(kernel.workspace_bytes(call, 1)));
  KernelContext context{&pool, workspace};
  for (auto _ : state) {
    kernel.run(call, context);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * rows * kVocab * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK_CAPTURE(RunDrawTokens, plain, RowDraw{.temperature = 0.8f})->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(RunDrawTokens, top_k_top_p,
                  RowDraw{.temperature = 0.8f, .top_p = 0.95f, .top_k = 50})
    ->Arg(1)
    ->Arg(32);

}  // namespace
}  // namespace pagemill::ops
