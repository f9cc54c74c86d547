// What every kernel of `latent_write` has to pass: odd sizes, runs and single tokens, tokens that
// are not stored, infinities and NaN, padded rows, 1 and 3 threads; bit for bit, and no byte of
// another slot is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_write/latent_f8_row.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

using conformance::PagedBatch;
using conformance::Random;
using conformance::TestTensor;

// Ordinary numbers, rounding edge cases, and in half of the rows one that is far from the others;
// NaN among the first `nans` elements of a row alone.
void Fill(TestTensor& tensor, Random& random, int64_t nans) {
  const float edges[] = {1.00390625f, 1.01171875f, 1.0625f, 0.0f, -1.75f};
  const float far[] = {std::nanf(""), -std::numeric_limits<float>::infinity(), 3.4e38f, 1e30f,
                       1e-38f};
  std::vector<float> values(static_cast<size_t>(tensor.view().Elements()));
  const int64_t width = tensor.view().RowElements();
  int64_t far_kind = 0, far_at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) % width;
    if (at == 0) {
      far_kind = random.Int(nans > 0 ? 0 : 1, 9);
      far_at = random.Int(0, (far_kind == 0 ? std::min(nans, width) : width) - 1);
    }
    const int64_t kind = random.Int(0, 39);
    values[i] = kind < 5 ? edges[kind] : random.Normal() * (kind < 8 ? 1e-4f : 1.0f);
    if (at == far_at && far_kind < 5) values[i] = far[far_kind];
  }
  tensor.Set(values);
}

// `rest`: elements of a row in bf16, if the cache is in fp8.
void CheckShape(const OpDefinition& op, const device::Capabilities& caps, DType dtype, int64_t size,
                int64_t rope_size, int32_t block_size, int32_t tokens_of_row = 1,
                int64_t rest = 0) {
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
  // NaN may have any bits in bf16 beside codes.
  Fill(latent, random, /*nans=*/32);
  if (rope_size > 0) Fill(rope, random, dtype == DType::kF8E4M3 ? 0 : rope_size);
  const LatentF8Row row = {.codes = size + rope_size - rest, .rest = rest};
  const int64_t width = dtype == DType::kF8E4M3 ? row.bytes() : size + rope_size;
  TestTensor cache(dtype, {batch.num_blocks(), block_size / tokens_of_row, width},
                   {.row_padding_bytes = 64});
  const TensorView inputs[] = {latent.view(), rope_size > 0 ? rope.view() : TensorView{},
                               cache.view()};
  Attributes attributes;
  attributes.Set("bf16_elements", static_cast<double>(rest));
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
  constexpr DType kF8 = DType::kF8E4M3;
  CheckShape(op, caps, kF8, 512, 64, 16, /*tokens_of_row=*/1, /*rest=*/64);
  CheckShape(op, caps, kF8, 33, 10, 32, /*tokens_of_row=*/1, /*rest=*/10);
  CheckShape(op, caps, kF8, 300, 10, 5, /*tokens_of_row=*/1, /*rest=*/40);
  CheckShape(op, caps, kF8, 130, 7, 1);
  CheckShape(op, caps, kF8, 1, 2, 1, /*tokens_of_row=*/1, /*rest=*/2);
  CheckShape(op, caps, kF8, 200, 0, 16, /*tokens_of_row=*/4, /*rest=*/9);
}

}  // namespace pagemill::ops
