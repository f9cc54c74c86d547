// What every kernel of `adjust_logits` that supports the call has to pass: nothing to do, biases,
// penalties and both, a slot that two rows have, drafts in front of rows, also of the same token
// and of none that there is, rows without any, tokens that are excluded, NaN
// and infinities, misaligned and padded rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSlots = 6;
constexpr int64_t kIds = 29;

struct Adjustments {
  std::vector<LogitBias> biases;
  std::vector<RowPenalties> penalties;
};

// For every third row nothing, for the others biases, penalties, or both.
Adjustments MakeAdjustments(Random& random, int64_t rows, int64_t width) {
  Adjustments made;
  for (int32_t row = static_cast<int32_t>(rows) - 1; row >= 0; --row) {
    for (int32_t token = 0; row % 3 != 0 && token < width; token += 1 + token / 2) {
      const bool excluded = random.Int(0, 3) == 0;
      made.biases.push_back(
          {.row = row, .token_id = token, .bias = excluded ? -kInfinity : random.Uniform(-9, 9)});
    }
    if (row % 3 == 1) continue;
    made.penalties.push_back({.row = row,
                              .slot = static_cast<int32_t>(random.Int(0, kSlots - 1)),
                              .repetition = random.Uniform(0.5f, 2),
                              .frequency = random.Uniform(-2, 2),
                              .presence = random.Uniform(-2, 2)});
    if (row % 2 == 0) continue;
    made.penalties.back().num_drafts = static_cast<int32_t>(random.Int(1, 6));
    made.penalties.back().first_draft = static_cast<int32_t>(random.Int(0, kIds - 6));
  }
  return made;
}

struct Expected {
  std::vector<float> logits;
  std::vector<double> bounds;  // of the error of each
};

Expected Expect(const std::vector<float>& before, const std::vector<int32_t>& counts,
                const std::vector<int32_t>& ids, const Adjustments& made, int64_t width) {
  Expected expected = {before, std::vector<double>(before.size(), 0)};
  for (const LogitBias& bias : made.biases) {
    expected.logits[static_cast<size_t>(bias.row * width + bias.token_id)] += bias.bias;
  }
  for (const RowPenalties& penalties : made.penalties) {
    for (int32_t v = 0; v < width; ++v) {
      const auto at = static_cast<size_t>(penalties.row * width + v);
      const auto* const drafts = ids.data() + penalties.first_draft;
      const auto times = std::count(drafts, drafts + penalties.num_drafts, v);
      const int32_t counted = counts[static_cast<size_t>(penalties.slot * width + v)] +
                              kOneOutput * static_cast<int32_t>(times);
      float& logit = expected.logits[at];
      logit = PenalizedLogit(logit, counted, penalties);
      if (counted == 0 || !std::isfinite(logit)) continue;
      // Each of a product, a sum and a difference rounded, or two of them at once.
      const double product = std::fabs(double{penalties.frequency} * counted / kOneOutput);
      expected.bounds[at] = 0x1p-23 * (2 * product + std::fabs(penalties.presence) +
                                       std::fabs(double{logit}));
    }
  }
  return expected;
}

void ExpectClose(const std::vector<float>& actual, const Expected& expected) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const float want = expected.logits[i];
    const bool same = std::isnan(want) ? std::isnan(actual[i]) : actual[i] == want;
    const bool close = std::isfinite(want) &&
                       std::fabs(double{actual[i]} - want) <= expected.bounds[i];
    ASSERT_TRUE(same || close) << "element " << i << ": " << actual[i] << ", not " << want;
  }
}

void Check(const OpDefinition& op, const device::Capabilities& caps, int64_t rows, int64_t width,
           bool adjusts) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << width);
  Random random(static_cast<uint64_t>(width));
  const Adjustments made = adjusts ? MakeAdjustments(random, rows, width) : Adjustments{};
  std::vector<float> logits;
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t special = random.Int(0, 30);
    logits.push_back(special == 0   ? std::numeric_limits<float>::quiet_NaN()
                     : special == 1 ? kInfinity
                     : special == 2 ? -kInfinity
                                    : random.Uniform(-20, 20));
  }
  std::vector<int32_t> counted;
  for (int64_t i = 0; i < kSlots * width; ++i) {
    counted.push_back(static_cast<int32_t>(random.Int(0, 1) * random.Int(0, 600)));
  }
  // Few tokens, so that drafts are the same; the last one is beyond the vocabulary.
  std::vector<int32_t> step_ids;
  for (int64_t i = 0; i < kIds; ++i) {
    step_ids.push_back(static_cast<int32_t>(random.Int(0, std::min<int64_t>(width, 8))));
  }
  const Expected expected = Expect(logits, counted, step_ids, made, width);
  TestTensor x(DType::kF32, {rows, width}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor counts(DType::kI32, {kSlots, width}, {.misalign_bytes = 8, .row_padding_bytes = 8});
  TestTensor biases(DType::kI32, {static_cast<int64_t>(made.biases.size()), kLogitBiasWords},
                    {.misalign_bytes = 4});
  TestTensor penalties(
      DType::kI32, {static_cast<int64_t>(made.penalties.size()), kRowPenaltiesWords},
      {.misalign_bytes = 4});
  counts.SetInt(counted);
  biases.SetInt(ToWords(made.biases));
  penalties.SetInt(ToWords(made.penalties));
  TestTensor ids(DType::kI32, {kIds}, {.misalign_bytes = 4});
  ids.SetInt(step_ids);
  const Attributes attributes;
  const TensorView inputs[] = {x.view(), counts.view(), biases.view(), penalties.view(),
                               ids.view()};
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    SCOPED_TRACE(kernel->name);
    x.Set(logits);
    device::ThreadPool pool({.num_threads = 3});
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(x.GuardsIntact());
    EXPECT_TRUE(counts.GuardsIntact());
    ExpectClose(x.ToFloat(), expected);
  }
}

}  // namespace

void CheckAdjustLogitsConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const int64_t width : {1, 33, 700}) {
    Check(op, caps, 11, width, true);
    Check(op, caps, 11, width, false);
  }
  Check(op, caps, 3, 9000, true);
}

}  // namespace pagemill::ops
