// What every kernel of `scatter_rows` has to pass: bit for bit, since the contract is exact: no
// rows at all, every row replaced, misaligned and padded operands, an output that aliases x.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

// Replaces every `step`th row from the last on, in descending order.
void CheckScatter(const OpDefinition& op, const device::Capabilities& caps, int64_t tokens,
                  int64_t step, int64_t hidden) {
  SCOPED_TRACE(::testing::Message() << tokens << " tokens, 1 of " << step << ", of " << hidden);
  std::vector<int32_t> rows;
  for (int64_t t = tokens - 1; t >= 0 && step > 0; t -= step) rows.push_back(static_cast<int>(t));
  const int64_t media = static_cast<int64_t>(rows.size());
  Random random(6);
  TestTensor x(DType::kF32, {tokens, hidden}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor y(DType::kF32, {media, hidden}, {.misalign_bytes = 8, .row_padding_bytes = 12});
  TestTensor indices(DType::kI32, {media}, {.misalign_bytes = 4});
  TestTensor z(DType::kF32, {tokens, hidden}, {.misalign_bytes = 4, .row_padding_bytes = 8});
  x.FillUniform(random, -1, 1);
  y.FillUniform(random, -1, 1);
  indices.SetInt(rows);
  std::vector<float> expected = x.ToFloat();
  for (int64_t m = 0; m < media; ++m) {
    std::copy_n(y.view().Row<float>(m), hidden, expected.begin() + rows[m] * hidden);
  }
  const Attributes attributes;
  const TensorView inputs[] = {x.view(), y.view(), indices.view()};
  const TensorView outputs[] = {z.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  conformance::CheckBits(op, caps, call, z, expected);
  conformance::CheckActTypes({.op = op, .caps = caps, .call = call, .act_inputs = 0b11});

  const std::vector<float> before = x.ToFloat();
  const TensorView in_place[] = {x.view()};
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    device::ThreadPool pool({.num_threads = 2});
    x.Set(before);
    conformance::RunKernel(
        *kernel, {.inputs = inputs, .outputs = in_place, .attributes = &attributes}, pool);
    EXPECT_TRUE(conformance::BitEqual(x.ToFloat(), expected)) << kernel->name << " in place";
    EXPECT_TRUE(x.GuardsIntact());
  }
}

}  // namespace

void CheckScatterRowsConformance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckScatter(op, caps, 1, 1, 1);
  CheckScatter(op, caps, 9, 0, 5);
  CheckScatter(op, caps, 9, 2, 33);
  CheckScatter(op, caps, 67, 1, 7);
  CheckScatter(op, caps, 70, 3, 576);
}

}  // namespace pagemill::ops
