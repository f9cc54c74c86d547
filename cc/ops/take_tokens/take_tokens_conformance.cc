// What every kernel of `take_tokens` that supports the call has to pass: no tokens, all and some
// of them sampled, rows without a token, misaligned operands, an output that aliases the ids; bit
// for bit, since the contract is exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

// `lowest` is the smallest id; each negative id refers to a row.
void Check(const OpDefinition& op, const device::Capabilities& caps, int64_t tokens, int64_t rows,
           float lowest) {
  SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << rows << " rows");
  Random random(4);
  TestTensor ids(DType::kI32, {tokens}, {.misalign_bytes = 4});
  TestTensor sampled(DType::kI32, {rows}, {.misalign_bytes = 8});
  TestTensor y(DType::kI32, {tokens}, {.misalign_bytes = 4});
  ids.FillUniform(random, lowest, lowest < 0 && tokens > 20 ? 9 : std::max(lowest, -1.0f));
  sampled.FillUniform(random, -1, 999);
  const std::vector<float> in = ids.ToFloat(), taken = sampled.ToFloat();
  std::vector<float> expected;
  for (const float id : in) {
    expected.push_back(std::max(0.0f, id >= 0 ? id : taken[static_cast<size_t>(-1 - id)]));
  }
  const Attributes attributes;
  for (TestTensor* target : {&y, &ids}) {
    const TensorView inputs[] = {ids.view(), sampled.view()}, outputs[] = {target->view()};
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
    for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
      ids.Set(in);
      y.Poison();
      device::ThreadPool pool({.num_threads = 3});
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(target->GuardsIntact()) << kernel->name;
      EXPECT_EQ(target->ToFloat(), expected) << kernel->name;
    }
  }
}

}  // namespace

void CheckTakeTokensConformance(const OpDefinition& op, const device::Capabilities& caps) {
  Check(op, caps, 0, 3, 0);
  Check(op, caps, 1, 1, -1);
  Check(op, caps, 9, 4, -4);
  Check(op, caps, 9, 4, 7);
  Check(op, caps, 700, 40, -40);
}

}  // namespace pagemill::ops
