#include "cuda/ops/kernels.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/quantized/random_packed.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::BitEqual;
using ops::conformance::Random;
using ops::conformance::RandomPacked;
using ops::conformance::TestTensor;

TEST_P(GpuConformance, GroupedLinear) {
  ops::CheckGroupedLinearConformance(OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp()),
                                     OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

// The kernel of bf16 products on this GPU: its warps decide which instructions it has.
const ops::Kernel& Bf16Kernel(const ops::OpDefinition& op) {
  const std::string_view name =
      GpuCapabilities().gpu.warp_lanes == 32 ? "tensor_core" : "matrix_core";
  return *std::ranges::find(op.kernels, name, &ops::Kernel::name);
}

// Each row has the bits of this kernel of `linear`. Rows of x are aligned, unlike those of the
// conformance body.
void CheckInBf16(const TensorView& stack, int64_t tokens, Random& random) {
  const ops::OpDefinition op = OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp());
  const ops::OpDefinition linear = OnGpu<LinearKernels>(ops::LinearOp());
  const int64_t choices = 2, experts = stack.shape[0], m = stack.shape[1], k = stack.shape[2];
  TestTensor x(DType::kBF16, {tokens, k}), ids(DType::kI32, {tokens, choices});
  TestTensor bias(DType::kF32, {experts, m}), y(DType::kBF16, {tokens, choices, m});
  x.FillUniform(random, -2, 2);
  bias.FillUniform(random, -1, 1);
  ids.FillUniform(random, 0, static_cast<float>(experts));  // one of none
  const TensorView inputs[] = {x.view(), ids.view(), stack, bias.view()}, outputs[] = {y.view()};
  const ops::Attributes attributes;
  const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  const ops::Kernel& kernel = Bf16Kernel(op);
  ASSERT_TRUE(kernel.supports(GpuCapabilities(), call));
  device::ThreadPool pool({.num_threads = 1});
  y.Poison();
  ops::conformance::RunKernel(kernel, call, pool);
  EXPECT_TRUE(y.GuardsIntact());
  const std::vector<float> got = y.ToFloat();
  std::vector<float> expected(got.size(), 0.0f);
  for (int64_t e = 0; e < experts; ++e) {
    const ops::MatrixOfStack w(stack, e);
    TestTensor rows(DType::kBF16, {tokens, m});
    const TensorView of_e[] = {x.view(), w.view(),
                               TensorView::Dense(bias.view().Row<void>(e), DType::kF32, {m})};
    const TensorView to[] = {rows.view()};
    ops::conformance::RunKernel(Bf16Kernel(linear),
                                {.inputs = of_e, .outputs = to, .attributes = &attributes}, pool);
    const std::vector<float> values = rows.ToFloat();
    for (int64_t row = 0; row < tokens * choices; ++row) {
      if (ids.view().Data<int32_t>()[row] != e) continue;
      std::copy_n(values.begin() + row / choices * m, m, expected.begin() + row * m);
    }
  }
  EXPECT_TRUE(BitEqual(got, expected));
}

TEST_P(GpuConformance, GroupedLinearInBf16) {
  Random random(3);
  // Each row alone, groups of some rows, and groups of many.
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{5, 3}, {35, 3}, {70, 2}}) {
    TestTensor bf16(DType::kBF16, {experts, 72, 64}), q8_0(DType::kQ8_0, {experts, 72, 64});
    bf16.FillUniform(random, -1, 1);
    q8_0.FillUniform(random, -1, 1);
    SCOPED_TRACE(std::to_string(tokens) + " tokens");
    CheckInBf16(bf16.view(), tokens, random);
    CheckInBf16(q8_0.view(), tokens, random);
    for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
      TestTensor values(dtype, {experts, 72, 64});
      values.FillUniform(random, -100, 100);
      for (const auto& [block_rows, block_columns] : {std::pair<int64_t, int64_t>{1, 64}, {16, 32}}) {
        SCOPED_TRACE(std::string(Info(dtype).name) + " in blocks of " +
                     std::to_string(block_columns));
        TestTensor scales(DType::kF32,
                          {experts, DivideUp(72, block_rows), DivideUp(64, block_columns)});
        scales.FillUniform(random, 0.001f, 0.01f);
        const QuantizedParts parts = {
            .format = {.block_rows = block_rows, .block_columns = block_columns},
            .values = values.view(),
            .scales = scales.view(),
            .zeros = {},
            .groups = {}};
        TensorView stack = values.view();
        stack.parts = &parts;
        CheckInBf16(stack, tokens, random);
      }
    }
    for (const auto& kind : ops::conformance::kPackedKinds) {
      if (!kind.has_zeros && kind.layout != QuantizedLayout::kMxfp4) continue;
      SCOPED_TRACE(NameOf(kind));
      CheckInBf16(RandomPacked(kind, experts, 72, 64, random).view(), tokens, random);
    }
  }
}

// Rows are sorted in several chunks, for more experts than a warp has lanes, which have groups of
// few rows, and for more chunks than are added up at once.
TEST_P(GpuConformance, GroupedLinearOfManyRows) {
  Random random(4);
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{130, 70}, {1200, 2}}) {
    SCOPED_TRACE(std::to_string(tokens) + " tokens");
    TestTensor stack(DType::kBF16, {experts, 8, 32});
    stack.FillUniform(random, -1, 1);
    CheckInBf16(stack.view(), tokens, random);
  }
}

// K has more stages than are under way, and half of one: in groups of some rows, many and most.
TEST_P(GpuConformance, GroupedLinearOfLongRows) {
  Random random(5);
  for (const DType dtype : {DType::kBF16, DType::kQ8_0}) {
    SCOPED_TRACE(std::string(Info(dtype).name));
    TestTensor stack(dtype, {3, 136, 352});
    stack.FillUniform(random, -1, 1);
    for (const int64_t tokens : {35, 70, 200}) CheckInBf16(stack.view(), tokens, random);
  }
}

}  // namespace
}  // namespace pagemill::gpu
