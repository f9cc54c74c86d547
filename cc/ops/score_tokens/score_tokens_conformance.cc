// What every kernel of `score_tokens` that supports the call has to pass: chosen and given tokens,
// rows and copies, every number of most likely tokens, fewer tokens than are wanted, equal logits,
// the most likely ones side by side and far from each other, as many as a vocabulary has, excluded
// tokens, rows and draws that are not usable, misaligned and padded rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/sample/sample.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kCopies = 4;

// Logits: every third row has few different ones, every fifth excluded ones; in row 2 is a NaN, in
// row 4 +inf, and row 7 has -inf alone.
std::vector<float> MakeLogits(Random& random, int64_t rows, int64_t width) {
  std::vector<float> logits;
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t row = i / width;
    const bool special = i % width == width / 2;
    float logit = 4.0f * random.Normal();
    if (row % 3 == 0) logit = static_cast<float>(random.Int(-2, 2));
    if (row % 5 == 0 && !special && random.Int(0, 1) == 0) logit = -kInfinity;
    if (row == 2 && special) logit = std::numeric_limits<float>::quiet_NaN();
    if (row == 4 && special) logit = kInfinity;
    if (row == 7) logit = -kInfinity;
    logits.push_back(logit);
  }
  return logits;
}

// Each row, some of them twice, in no order; every other one has a copy, as far as there are some.
std::vector<ScoredRow> MakeScored(Random& random, int64_t rows, int64_t width) {
  std::vector<ScoredRow> scored;
  int32_t copies = 0;
  const auto step = [&random] { return random.Int(0, 2) > 0 ? 1 : 0; };
  for (auto row = static_cast<int32_t>(rows) - 1; row >= 0; row -= step()) {
    ScoredRow& added = scored.emplace_back();
    added.row = row;
    if (random.Int(0, 1) == 0) added.token_id = static_cast<int32_t>(random.Int(0, width - 1));
    added.num_top = static_cast<int32_t>(random.Int(0, kMaxScoredTop));
    if (row % 2 == 1 && copies < kCopies) added.copy = copies++;
  }
  return scored;
}

// The exponentials of a row and their sum are of the kernel's own arithmetic, a logarithm and a
// difference are rounded.
bool IsClose(float got, double want) {
  if (std::isinf(want)) return double{got} == want;
  return std::fabs(double{got} - want) <= 2e-6 + 0x1p-22 * std::fabs(want);
}

void ExpectScores(const TokenScores& got, const ScoredRow& scored, std::span<const float> logits,
                  int32_t token) {
  const MaxEntry max = reference::ArgMax(logits);
  if (max.token_id < 0) return;  // undefined
  const double lse = reference::LogSumExp(logits, max.logit);
  if (token >= 0) {
    const float logit = logits[static_cast<size_t>(token)];
    EXPECT_TRUE(IsClose(got.logprob, double{logit} - lse)) << got.logprob;
    EXPECT_EQ(got.rank, reference::RankOf(logits, logit));
  }
  std::vector<Candidate> storage(logits.size());
  size_t place = 0;
  for (const Candidate& top : reference::TopEntries(logits, scored.num_top, storage)) {
    EXPECT_EQ(got.top_ids[place], top.token_id) << "place " << place;
    EXPECT_TRUE(IsClose(got.top_logprobs[place], double{top.logit} - lse)) << "place " << place;
    ++place;
  }
}

struct Case {
  std::vector<float> logits, copies;  // kCopies copies
  std::vector<ScoredRow> scored;
};

void Check(const OpDefinition& op, const device::Capabilities& caps, int64_t rows, int64_t width,
           const Case& of) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << width);
  Random random(static_cast<uint64_t>(width));
  const auto count = static_cast<int64_t>(of.scored.size());
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < rows; ++row) {
    chosen.push_back(row % 6 == 5 ? -1 : static_cast<int32_t>(random.Int(0, width - 1)));
  }
  TestTensor x(DType::kF32, {rows, width}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor copies(DType::kF32, {kCopies, width}, {.misalign_bytes = 8, .row_padding_bytes = 8});
  TestTensor columns(DType::kI32, {rows}, {.misalign_bytes = 4});
  TestTensor words(DType::kI32, {count, kScoredRowWords}, {.misalign_bytes = 4});
  TestTensor y(DType::kI32, {count, kTokenScoresWords}, {.misalign_bytes = 4});
  x.Set(of.logits);
  copies.Set(of.copies);
  columns.SetInt(chosen);
  words.SetInt(ToWords(of.scored));
  const Attributes attributes;
  const TensorView inputs[] = {x.view(), copies.view(), columns.view(), words.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    SCOPED_TRACE(kernel->name);
    device::ThreadPool pool({.num_threads = 3});
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(y.GuardsIntact());
    for (int64_t n = 0; n < count; ++n) {
      const ScoredRow& row = of.scored[static_cast<size_t>(n)];
      SCOPED_TRACE(::testing::Message() << "row " << row.row << ", copy " << row.copy);
      const auto at = static_cast<size_t>((row.copy < 0 ? row.row : row.copy) * width);
      const std::vector<float>& from = row.copy < 0 ? of.logits : of.copies;
      ExpectScores(FromWords<TokenScores>(y.view(), n), row,
                   std::span(from).subspan(at, static_cast<size_t>(width)),
                   row.token_id >= 0 ? row.token_id : chosen[static_cast<size_t>(row.row)]);
    }
  }
}

void CheckRows(const OpDefinition& op, const device::Capabilities& caps, int64_t rows,
               int64_t width, bool scores = true) {
  Random random(static_cast<uint64_t>(width));
  const Case of = {.logits = MakeLogits(random, rows, width),
                   .copies = MakeLogits(random, kCopies, width),
                   .scored = scores ? MakeScored(random, rows, width) : std::vector<ScoredRow>()};
  Check(op, caps, rows, width, of);
}

// Rows as wide as a vocabulary: of equal logits; with the most likely ones 1,024 columns from each
// other, so that one thread of a block may have them all.
void CheckWideRows(const OpDefinition& op, const device::Capabilities& caps, int64_t width) {
  Case of = {.logits = std::vector<float>(static_cast<size_t>(2 * width), 0.5f),
             .copies = std::vector<float>(static_cast<size_t>(kCopies * width)),
             .scored = {{.row = 1, .num_top = kMaxScoredTop}, {.num_top = kMaxScoredTop}}};
  Random random(static_cast<uint64_t>(width));
  for (int64_t i = 0; i < width; ++i) {
    const float least = i % 1024 == 77 ? 9.0f : 0.0f;
    of.logits[static_cast<size_t>(width + i)] =
        least + static_cast<float>(random.Int(0, 40)) / 8;
  }
  Check(op, caps, 2, width, of);
}

}  // namespace

void CheckScoreTokensConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const int64_t width : {1, 7, 33, 700}) CheckRows(op, caps, 11, width);
  CheckRows(op, caps, 4, 9000);
  CheckRows(op, caps, 3, 33, /*scores=*/false);
  CheckWideRows(op, caps, 70'001);
  CheckWideRows(op, caps, 300'000);
}

}  // namespace pagemill::ops
