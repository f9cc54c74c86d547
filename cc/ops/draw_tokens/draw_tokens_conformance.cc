// What every kernel of `draw_tokens` that supports the call has to pass: empty input, rows with
// and without a temperature side by side, every limit alone and with others, equal logits, also
// where top-p ends, excluded tokens, rows without a largest element, misaligned and padded rows, an
// output that aliases the columns, 1 and 3 threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/sample.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Draw parameters of row `row`: one row in four is greedy; each limit is set at random.
RowDraw MakeDraw(Random& random, int64_t row) {
  RowDraw draw;
  draw.temperature = row % 4 == 1 ? 0.0f : random.Uniform(0.05f, 2.0f);
  draw.min_p = random.Int(0, 2) == 0 ? random.Uniform(0.0f, 0.3f) : 0.0f;
  draw.top_k = random.Int(0, 2) == 0 ? static_cast<int32_t>(random.Int(1, 60)) : 0;
  draw.top_p = random.Int(0, 2) == 0 ? random.Uniform(0.05f, 1.0f) : 1.0f;
  draw.SetSeed(random.Next());
  draw.position = static_cast<int32_t>(random.Int(0, 1 << 30));
  return draw;
}

// Draw parameters by which the last token that is kept is one of many that are equal.
RowDraw MakeTopPDraw(Random& random) {
  RowDraw draw;
  draw.temperature = 1;
  draw.top_p = random.Uniform(0.8f, 1.0f);
  draw.SetSeed(random.Next());
  draw.position = static_cast<int32_t>(random.Int(0, 1 << 30));
  return draw;
}

// Draw parameters of rows that have the same limits.
RowDraw MakeLimitedDraw(Random& random, RowDraw limits) {
  limits.SetSeed(random.Next());
  limits.position = static_cast<int32_t>(random.Int(0, 1 << 30));
  return limits;
}

// Limits that leave few tokens, many, one, or all, of some thousands.
constexpr RowDraw kLimits[] = {
    {.temperature = 0.5f, .top_k = 50},
    {.temperature = 2.0f, .top_k = 2000},
    {.temperature = 1.0f, .top_k = 20000},
    {.temperature = 0.5f, .top_p = 1e-6f},
    {.temperature = 2.0f, .top_p = 0.95f},
    {.temperature = 0.7f, .min_p = 0.01f, .top_p = 0.9f, .top_k = 40},
};

// Logits: every third row has equal ones, every fifth row excluded ones; row 2 has a NaN.
std::vector<float> MakeLogits(Random& random, int64_t rows, int64_t width) {
  std::vector<float> x;
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t row = i / width;
    float logit = 3.0f * random.Normal();
    if (row % 3 == 0) logit = std::round(logit);
    if (row % 5 == 0 && i % width != 0 && random.Int(0, 1) == 0) logit = -kInfinity;
    if (row == 2 && i % width == width / 2) logit = std::numeric_limits<float>::quiet_NaN();
    x.push_back(logit);
  }
  return x;
}

std::vector<float> MakeFewLogits(Random& random, int64_t rows, int64_t width) {
  std::vector<float> x;
  for (int64_t i = 0; i < rows * width; ++i) x.push_back(static_cast<float>(random.Int(0, 3)));
  return x;
}

struct Case {
  // With four different logits if `few`; with `limits` if they are not null.
  Case(Random& random, int64_t rows, int64_t width, bool few, const RowDraw* limits)
      : logits((few ? MakeFewLogits : MakeLogits)(random, rows, width)),
        x(DType::kF32, {rows, width}, {.misalign_bytes = 4, .row_padding_bytes = 4}),
        columns(DType::kI32, {rows}, {.misalign_bytes = 4}),
        values(DType::kF32, {rows}, {.misalign_bytes = 8}),
        draws(DType::kI32, {rows, kRowDrawWords}, {.misalign_bytes = 4}) {
    x.Set(logits);
    std::vector<float> largest;
    std::vector<int32_t> words(static_cast<size_t>(rows * kRowDrawWords));
    for (int64_t row = 0; row < rows; ++row) {
      const std::span<const float> of_row =
          std::span(logits).subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
      const MaxEntry max = reference::ArgMax(of_row);
      const RowDraw draw = limits != nullptr ? MakeLimitedDraw(random, *limits)
                           : few             ? MakeTopPDraw(random)
                                             : MakeDraw(random, row);
      std::memcpy(&words[static_cast<size_t>(row * kRowDrawWords)], &draw, sizeof(draw));
      at_largest.push_back(max.token_id);
      largest.push_back(max.logit);
      expected.push_back(max.token_id);
      is_drawn.push_back(max.token_id >= 0 && draw.temperature > 0.0f);
      if (!is_drawn.back()) continue;
      expected.back() = reference::DrawToken(of_row, max, DrawParamsOf(draw), {});
    }
    values.Set(largest);
    draws.SetInt(words);
  }

  std::vector<float> logits;
  std::vector<int32_t> at_largest, expected;
  std::vector<bool> is_drawn;
  TestTensor x, columns, values, draws;
};

std::vector<int32_t> Ints(const TestTensor& tensor) {
  std::vector<int32_t> ints(static_cast<size_t>(tensor.view().shape[0]));
  if (!ints.empty()) std::memcpy(ints.data(), tensor.view().data, 4 * ints.size());
  return ints;
}

// Rows that are not drawn must be exact. The contract allows a difference if the random number is
// within 1e-6 of a boundary: the probability is 1e-6 * width per row, so two different rows in a
// case are an error.
void ExpectDrawn(const std::vector<int32_t>& got, const Case& drawn, std::string_view kernel) {
  ASSERT_EQ(got.size(), drawn.expected.size());
  int different = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    if (drawn.is_drawn[row]) {
      different += got[row] != drawn.expected[row] ? 1 : 0;
    } else {
      EXPECT_EQ(got[row], drawn.expected[row]) << kernel << ", row " << row;
    }
  }
  EXPECT_LE(different, 1) << kernel;
}

void Check(const OpDefinition& op, const device::Capabilities& caps, int64_t rows, int64_t width,
           bool few = false, const RowDraw* limits = nullptr) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << width);
  Random random(static_cast<uint64_t>(width));
  Case drawn(random, rows, width, few, limits);
  TestTensor y(DType::kI32, {rows}, {.misalign_bytes = 4});
  const Attributes attributes;
  for (TestTensor* target : {&y, &drawn.columns}) {
    const TensorView inputs[] = {drawn.x.view(), drawn.columns.view(), drawn.values.view(),
                                 drawn.draws.view()};
    const TensorView outputs[] = {target->view()};
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
    for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
      for (const int32_t threads : {1, 3}) {
        device::ThreadPool pool({.num_threads = threads});
        drawn.columns.SetInt(drawn.at_largest);
        y.Poison();
        conformance::RunKernel(*kernel, call, pool);
        EXPECT_TRUE(target->GuardsIntact()) << kernel->name;
        ExpectDrawn(Ints(*target), drawn, kernel->name);
      }
    }
  }
}

}  // namespace

void CheckDrawTokensConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const int64_t width : {1, 31, 64, 65, 700}) Check(op, caps, 23, width);
  Check(op, caps, 3, 5000);
  Check(op, caps, 5, 40000);  // more than a column for each thread of a part
  Check(op, caps, 40, 200, /*few=*/true);
  for (const RowDraw& limits : kLimits) {
    SCOPED_TRACE(::testing::Message() << "top_k " << limits.top_k << ", top_p " << limits.top_p);
    Check(op, caps, 5, 9000, /*few=*/false, &limits);
  }
  Check(op, caps, 0, 9);
}

}  // namespace pagemill::ops
