// What every kernel of `mask_tokens` that supports the call has to pass: empty input, rows with
// and without a mask, masks that two rows share, that allow all, nothing and some, bits beyond the
// columns, NaN and infinities, misaligned and padded rows, an output that aliases x, 1 and 3
// threads; bit for bit, since the contract is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/sample/row_draw.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kMasks = 4;  // one allows all columns, one none, two some

int32_t MaskWord(Random& random, int64_t mask) {
  if (mask < 2) return mask == 0 ? -1 : 0;
  return static_cast<int32_t>(
      random.Int(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

void Check(const OpDefinition& op, const device::Capabilities& caps, int64_t rows, int64_t width) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << width);
  Random random(static_cast<uint64_t>(width));
  const int64_t num_words = (width + 31) / 32;
  TestTensor x(DType::kF32, {rows, width}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor y(DType::kF32, {rows, width}, {.misalign_bytes = 8, .row_padding_bytes = 8});
  TestTensor draws(DType::kI32, {rows, kRowDrawWords}, {.misalign_bytes = 4});
  TestTensor masks(DType::kI32, {kMasks, num_words}, {.misalign_bytes = 4});
  std::vector<int32_t> words, of_rows(static_cast<size_t>(rows * kRowDrawWords));
  for (int64_t i = 0; i < kMasks * num_words; ++i) words.push_back(MaskWord(random, i / num_words));
  masks.SetInt(words);
  std::vector<float> logits, expected;
  for (int64_t l = 0; l < rows; ++l) {
    const RowDraw draw = {.mask = static_cast<int32_t>(l % (kMasks + 1)) - 1};
    std::memcpy(&of_rows[static_cast<size_t>(l * kRowDrawWords)], &draw, sizeof(draw));
    for (int64_t v = 0; v < width; ++v) {
      const int64_t special = random.Int(0, 30);
      logits.push_back(special == 0   ? std::numeric_limits<float>::quiet_NaN()
                       : special == 1 ? kInfinity
                       : special == 2 ? -kInfinity
                                      : random.Uniform(-2, 2));
      const size_t word = static_cast<size_t>(draw.mask * num_words + v / 32);
      const bool allowed =
          draw.mask < 0 || (static_cast<uint32_t>(words[word]) >> (v % 32) & 1u) != 0;
      const bool at_fault = std::isnan(logits.back()) || logits.back() == kInfinity;
      expected.push_back(allowed || at_fault ? logits.back() : -kInfinity);
    }
  }
  draws.SetInt(of_rows);
  const Attributes attributes;
  for (TestTensor* target : {&y, &x}) {
    const TensorView inputs[] = {x.view(), draws.view(), masks.view()},
                     outputs[] = {target->view()};
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
    for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
      for (const int32_t threads : {1, 3}) {
        device::ThreadPool pool({.num_threads = threads});
        y.Poison();
        x.Set(logits);
        conformance::RunKernel(*kernel, call, pool);
        EXPECT_TRUE(target->GuardsIntact()) << kernel->name;
        EXPECT_TRUE(conformance::BitEqual(target->ToFloat(), expected)) << kernel->name;
      }
    }
  }
}

}  // namespace

void CheckMaskTokensConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const int64_t width : {1, 31, 32, 33, 700}) Check(op, caps, 11, width);
  Check(op, caps, 0, 9);
}

}  // namespace pagemill::ops
