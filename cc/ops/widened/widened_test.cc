#include "cc/ops/widened/widened.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cc/ops/conformance.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

constexpr int64_t kOwnBytes = 24;

// y = a + b + bias, in f32; fills its workspace. b is optional.
void Sum(const OpCall& call, KernelContext& context) {
  EXPECT_EQ(context.workspace.size(), size_t{kOwnBytes});
  std::memset(context.workspace.data(), 0, context.workspace.size());
  const TensorView& a = call.inputs[0];
  const TensorView& b = call.inputs[1];
  const TensorView& y = call.outputs[0];
  for (const TensorView* view : {&a, &y}) {
    EXPECT_EQ(view->dtype, DType::kF32);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) % 64, 0u);
  }
  for (int64_t n = 0; n < a.shape[0]; ++n) {
    for (int64_t i = 0; i < a.RowElements(); ++i) {
      y.Row<float>(n)[i] = a.Row<float>(n)[i] + (b.rank == 0 ? 0 : b.Row<float>(n)[i]) +
                           call.inputs[2].Data<float>()[i];
    }
  }
}

constexpr F32Kernel kSum{
    .act_inputs = 0b011, .run = Sum, .workspace_bytes = [](const OpCall&, int32_t num_threads) {
      return num_threads * kOwnBytes;
    }};
constexpr Kernel kRow = WidenedReference<&kSum>("sum");

class WidenedTest : public ::testing::Test {
 protected:
  explicit WidenedTest(DType act = DType::kBF16)
      : a(act, {3, 5}, {.misalign_bytes = 2}),
        b(act, {3, 5}),
        bias(DType::kF32, {5}),
        y(act, {3, 5}) {
    a.Set(std::vector<float>(15, 1));
    b.Set(std::vector<float>(15, 0.5f));
    bias.Set(std::vector<float>{0, 0x1p-8f, 3 * 0x1p-8f, 256, -1});
  }
  OpCall Call() { return {.inputs = inputs, .outputs = outputs, .attributes = &attributes}; }

  device::ThreadPool pool{device::ThreadPoolOptions{.num_threads = 1}};
  TestTensor a, b, bias, y;
  Attributes attributes;
  std::vector<TensorView> inputs = {a.view(), b.view(), bias.view()}, outputs = {y.view()};
};

TEST_F(WidenedTest, SumsInF32AndRoundsOnce) {
  conformance::RunKernel(kRow, Call(), pool);
  // 1.5 + 2^-8 is between 1.5 and 1.5 + 2^-7, whose last bits are 0 and 1; 257.5 between 256 and
  // 258.
  const float row[] = {1.5f, 1.5f, 1.5f + 2 * 0x1p-7f, 258, 0.5f};
  const std::vector<float> result = y.ToFloat();
  for (size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i], row[i % 5]) << i;
  EXPECT_TRUE(y.GuardsIntact());
}

TEST_F(WidenedTest, WorkspaceHoldsWhatIsWidenedInLines) {
  EXPECT_EQ(kRow.workspace_bytes(Call(), 1), 3 * 64 + kOwnBytes);
  inputs[1] = TensorView{};
  EXPECT_EQ(kRow.workspace_bytes(Call(), 1), 2 * 64 + kOwnBytes);
  conformance::RunKernel(kRow, Call(), pool);
  EXPECT_EQ(y.ToFloat()[0], 1);
}

TEST_F(WidenedTest, OutputMayBeAnInput) {
  outputs[0] = a.view();
  conformance::RunKernel(kRow, Call(), pool);
  EXPECT_EQ(a.ToFloat()[4], 0.5f);
}

TEST_F(WidenedTest, F32IsLeftWhereItIs) {
  TestTensor wide_a(DType::kF32, {3, 5}), wide_y(DType::kF32, {3, 5});
  wide_a.Set(std::vector<float>(15, 1));
  inputs = {wide_a.view(), TensorView{}, bias.view()};
  outputs = {wide_y.view()};
  EXPECT_EQ(kRow.workspace_bytes(Call(), 1), kOwnBytes);
  conformance::RunKernel(kRow, Call(), pool);
  EXPECT_EQ(wide_y.ToFloat()[1], 1.00390625f);
}

}  // namespace
}  // namespace pagemill::ops
