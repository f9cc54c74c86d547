// What every kernel of `latent_write` has to pass: odd sizes, runs and single tokens, tokens that
// are not stored, infinities and NaN, padded rows, 1 and 3 threads; bit for bit, and no byte of
// another slot is touched.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

using conformance::PagedBatch;
using conformance::Random;
using conformance::TestTensor;

// Ordinary numbers and rounding edge cases.
void Fill(TestTensor& tensor, Random& random) {
  const float hard[] = {1.00390625f, 1.01171875f, 3.4e38f, -std::numeric_limits<float>::infinity(),
                        std::nanf("")};
  std::vector<float> values(static_cast<size_t>(tensor.view().Elements()));
  for (float& v : values) {
    const int64_t kind = random.Int(0, 19);
    v = kind < 5 ? hard[kind] : random.Normal();
  }
  tensor.Set(values);
}

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, DType dtype, int64_t size,
                int64_t rope_size, int32_t block_size, int32_t tokens_of_row = 1) {
  Random random(static_cast<uint64_t>(size * 1000 + rope_size));
  const PagedBatch batch(block_size,
                         {{.context = 5, .tokens = 1},
                          {.context = 0, .tokens = 3 * block_size + 3},
                          {.context = 0, .tokens = 0},
                          {.context = 2 * block_size, .tokens = 40}},
                         random);
  const int64_t tokens = batch.view().num_tokens;
  std::vector<int32_t> slots(batch.view().slot_mapping, batch.view().slot_mapping + tokens);
  slots[0] = -1;
  slots[7] = -1;
  BatchView view = batch.view();
  view.slot_mapping = slots.data();
  TestTensor latent(DType::kF32, {tokens, size}, {.row_padding_bytes = 12});
  TestTensor rope(DType::kF32, {tokens, 1, rope_size}, {.misalign_bytes = 4});
  Fill(latent, random);
  if (rope_size > 0) Fill(rope, random);
  TestTensor cache(dtype, {batch.num_blocks(), block_size / tokens_of_row, size + rope_size},
                   {.row_padding_bytes = 64});
  const TensorView inputs[] = {latent.view(), rope_size > 0 ? rope.view() : TensorView{},
                               cache.view()};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &view};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool one({.num_threads = 1});
  cache.Poison();
  conformance::RunKernel(conformance::ReferenceKernel(op), call, one);
  const std::vector<uint8_t> expected = cache.Bytes();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      device::ThreadPool pool({.num_threads = threads});
      cache.Poison();
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(cache.Bytes() == expected) << kernel->name << " size " << size;
      EXPECT_TRUE(cache.GuardsIntact() && latent.GuardsIntact() && rope.GuardsIntact())
          << kernel->name;
    }
  }
  conformance::CheckActTypes(
      {.op = op,
       .caps = caps,
       .call = call,
       .act_inputs = rope_size > 0 ? 0b11u : 0b1u,
       .cache = &cache});
}

}  // namespace

void CheckLatentWriteConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    CheckShape(op, caps, dtype, 512, 64, 16);
    CheckShape(op, caps, dtype, 33, 10, 32);
    CheckShape(op, caps, dtype, 7, 1, 5);
    CheckShape(op, caps, dtype, 1, 2, 1);
    CheckShape(op, caps, dtype, 33, 0, 16, /*tokens_of_row=*/4);
    CheckShape(op, caps, dtype, 7, 3, 8, /*tokens_of_row=*/8);
  }
}

}  // namespace pagemill::ops
