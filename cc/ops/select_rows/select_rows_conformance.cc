// What every kernel of `select_rows` that supports the call has to pass: empty input, repeated
// rows, misaligned and padded operands, 1 and 3 threads; bit for bit, since the contract is exact.
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

void CheckGather(const OpDefinition& op, const device::Capabilities& caps, int64_t tokens,
                 int64_t rows, int64_t hidden, int64_t count = 1) {
  SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << rows << " rows of " << hidden
                                    << ", " << count << " side by side");
  Random random(6);
  TestTensor x(DType::kF32, {tokens, hidden}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor indices(DType::kI32, {rows}, {.misalign_bytes = 4});
  TestTensor y(DType::kF32, {rows, count * hidden}, {.misalign_bytes = 4, .row_padding_bytes = 8});
  x.FillUniform(random, -1, 1);
  indices.FillUniform(random, 0, static_cast<float>(tokens - 1));
  std::vector<float> expected;
  for (int64_t l = 0; l < rows; ++l) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = *indices.view().Row<int32_t>(l) + i;
      for (int64_t h = 0; h < hidden; ++h) {
        expected.push_back(row < tokens ? x.view().Row<float>(row)[h] : 0);
      }
    }
  }
  Attributes attributes;
  attributes.Set("count", static_cast<double>(count));
  const TensorView inputs[] = {x.view(), indices.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  conformance::CheckBits(op, caps, call, y, expected);
  conformance::CheckActTypes({.op = op, .caps = caps, .call = call, .act_inputs = 0b1});
}

}  // namespace

void CheckSelectRowsConformance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckGather(op, caps, 1, 1, 1);
  CheckGather(op, caps, 9, 0, 5);
  CheckGather(op, caps, 9, 4, 33);
  CheckGather(op, caps, 67, 67, 7);
  CheckGather(op, caps, 3, 50, 576);               // rows may repeat
  CheckGather(op, caps, 5, 3, 9001);
  CheckGather(op, caps, 5, 4, 4099, /*count=*/2);
  CheckGather(op, caps, 24, 11, 33, /*count=*/4);  // the last ones go beyond the end
}

}  // namespace pagemill::ops
