// What every kernel of `count_tokens` that supports the call has to pass: nothing to do, slots that
// are cleared, changed, both and neither, tokens of the step's ids, one of them without a token,
// misaligned and padded rows; bit for bit, since the contract is exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/sample/row_adjustments.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

constexpr int64_t kSlots = 7, kIds = 5;

void Check(const OpDefinition& op, const device::Capabilities& caps, int64_t vocab,
           const std::vector<int32_t>& cleared, int64_t changes_per_slot) {
  SCOPED_TRACE(::testing::Message() << vocab << " tokens, " << changes_per_slot << " changes");
  Random random(static_cast<uint64_t>(vocab));
  std::vector<int32_t> before, changes;
  for (int64_t i = 0; i < kSlots * vocab; ++i) {
    before.push_back(static_cast<int32_t>(random.Int(0, 9)));
  }
  // One is no token, one is no token of the vocabulary.
  std::vector<int32_t> ids = {0, static_cast<int32_t>(vocab - 1), -1, static_cast<int32_t>(vocab),
                              static_cast<int32_t>(vocab / 2)};
  std::vector<int32_t> expected = before;
  for (const int32_t slot : cleared) {
    std::fill_n(expected.begin() + slot * vocab, vocab, 0);
  }
  // Slots from the last to the second, of which every other has a token of the ids.
  for (int32_t slot = kSlots - 1; slot > 0 && changes_per_slot > 0; --slot) {
    const auto first = static_cast<int32_t>(random.Int(0, vocab - 1));
    for (int64_t c = 0; c < std::min(changes_per_slot, vocab); ++c) {
      const bool by_id = slot % 2 == 0;
      const int32_t index = slot % static_cast<int32_t>(kIds);
      const int32_t token =
          by_id ? ids[static_cast<size_t>(index)]
                : static_cast<int32_t>((first + c) % vocab);
      const auto amount = static_cast<int32_t>(random.Int(1, 1000));
      changes.insert(changes.end(), {slot, by_id ? TokenOfInput(index) : token, amount});
      if (token >= 0 && token < vocab) {
        expected[static_cast<size_t>(slot * vocab + token)] += amount;
      }
      if (by_id) break;
    }
  }
  const auto num_changes = static_cast<int64_t>(changes.size()) / kTokenCountWords;
  TestTensor counts(DType::kI32, {kSlots, vocab}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor cleared_slots(DType::kI32, {static_cast<int64_t>(cleared.size())},
                           {.misalign_bytes = 8});
  TestTensor words(DType::kI32, {num_changes, kTokenCountWords}, {.misalign_bytes = 4});
  TestTensor tokens(DType::kI32, {kIds}, {.misalign_bytes = 4});
  cleared_slots.SetInt(cleared);
  words.SetInt(changes);
  tokens.SetInt(ids);
  const Attributes attributes;
  const TensorView inputs[] = {counts.view(), cleared_slots.view(), words.view(), tokens.view()};
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  const std::vector<float> as_floats(expected.begin(), expected.end());
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    counts.SetInt(before);
    device::ThreadPool pool({.num_threads = 3});
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(counts.GuardsIntact()) << kernel->name;
    EXPECT_EQ(counts.ToFloat(), as_floats) << kernel->name;
  }
}

}  // namespace

void CheckCountTokensConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const int64_t vocab : {1, 33, 700}) {
    Check(op, caps, vocab, {}, 0);
    Check(op, caps, vocab, {5, 0, 6}, 40);
    Check(op, caps, vocab, {}, 40);
    Check(op, caps, vocab, {1, 3}, 0);
  }
  Check(op, caps, 9000, {2}, 700);
}

}  // namespace pagemill::ops
