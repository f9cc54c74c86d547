// Adapters of a program on the GPU: the numbers of the CPU, and no launch in steps without them.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/emulation/runtime.h"
#include "cuda/testing/gpu_under_test.h"

namespace pagemill::gpu {
namespace {

using program::AdapterWeights;
using program::DeviceExecutor;
using program::NativeExecutor;
using program::Program;

constexpr int32_t kTokens = 3, kIn = 40, kOut = 24, kRank = 2;
// The result of the adapter takes the place of what it changes, as in models.
constexpr char kText[] =
    "pagemill-program 3\n"
    "adapter layer 24,40\n"
    "input x act tokens,40\n"
    "input y act tokens,24\n"
    "input adapter_slots i32 tokens\n"
    "value product act tokens,24\n"
    "value adapted act tokens,24\n"
    "value z act tokens,24\n"
    "op scale y -> product by=2\n"
    "op apply_adapter x,adapter_slots,-,-,product,layer -> adapted\n"
    "op scale adapted -> z by=3\n"
    "output z z\n";

std::vector<float> Numbers(uint64_t seed, int64_t size) {
  ops::conformance::Random random(seed);
  std::vector<float> numbers(static_cast<size_t>(size));
  for (float& number : numbers) number = random.Uniform(-1, 1);
  return numbers;
}

std::vector<float> ResultOf(program::Executor& executor, const std::vector<int32_t>& slots) {
  std::vector<float> x = Numbers(1, kTokens * kIn), y = Numbers(2, kTokens * kOut);
  const std::vector<TensorView> inputs = {
      TensorView::Dense(x.data(), DType::kF32, {kTokens, kIn}),
      TensorView::Dense(y.data(), DType::kF32, {kTokens, kOut})};
  const int32_t zeros[kTokens] = {}, ones[] = {1, 1, 1}, counts[] = {0, 1, 2, 3};
  program::ExecutorOutput output;
  const Status status = executor.Execute({{.num_tokens = kTokens,
                                           .num_requests = kTokens,
                                           .num_logits_rows = kTokens,
                                           .token_ids = zeros,
                                           .positions = zeros,
                                           .query_start = counts,
                                           .seq_lens = ones,
                                           .logits_rows = counts,
                                           .adapter_slots = slots.data()},
                                          /*kv=*/{},
                                          inputs},
                                         &output);
  EXPECT_TRUE(status.ok()) << status.ToString();
  if (!status.ok()) return {};
  const TensorView z = output.Find("z");
  return {z.Data<float>(), z.Data<float>() + z.Elements()};
}

TEST(Adapters, StepsWithoutThemLaunchNothingForThem) {
  const GpuUnderTest gpu;
  program::ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = options.max_num_seqs = options.max_num_logits_rows = 8;
  options.max_adapters = 2;
  const auto on_cpu =
      *NativeExecutor::Create(*Program::Parse(kText), {.ops = ops::CpuOps()}, options);
  const auto on_gpu =
      *DeviceExecutor::Create(*Program::Parse(kText), gpu.under_test.target, *gpu.device, options,
                              {.max_graph_tokens = 0, .max_adapter_rank = kRank});
  std::vector<float> a = Numbers(3, kRank * kIn), b = Numbers(4, kOut * kRank);
  const auto weights = *AdapterWeights::Make(
      *Program::Parse(kText),
      std::vector<AdapterWeights::Layer>{
          {.name = "layer",
           .tensors = {.a = TensorView::Dense(a.data(), DType::kF32, {kRank, kIn}),
                       .b = TensorView::Dense(b.data(), DType::kF32, {kOut, kRank}),
                       .gain = {},
                       .offset = {}}}});
  ASSERT_TRUE(on_cpu->SetAdapter(1, weights).ok());
  ASSERT_TRUE(on_gpu->SetAdapter(1, weights.get()).ok());

  const std::vector<int32_t> some = {1, -1, 0}, none = {-1, -1, -1};
  for (const std::vector<int32_t>& slots : {some, none}) {
    EXPECT_TRUE(ops::conformance::AllClose(ResultOf(*on_gpu, slots), ResultOf(*on_cpu, slots),
                                           {.abs = 1e-5}));
  }
  const auto enqueued = [&](const std::vector<int32_t>& slots) {
    const int64_t before = emulation::EmulatedGpu::memory().num_enqueued();
    ResultOf(*on_gpu, slots);
    return emulation::EmulatedGpu::memory().num_enqueued() - before;
  };
  EXPECT_EQ(enqueued(some) - enqueued(none), 2) << "A x, then B times that";
}

}  // namespace
}  // namespace pagemill::gpu
