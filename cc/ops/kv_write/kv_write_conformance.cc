#include <cmath>
#include <limits>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/key_layout.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

using conformance::PagedBatch;
using conformance::Random;
using conformance::RunKernel;
using conformance::TestTensor;

struct Shape {
  int64_t heads, head_dim;
  int32_t block_size;
  int64_t value_dim = head_dim;
};

// Keys and values are views into one wider row, like outputs of a fused projection, and contain
// rounding edge cases: ties, overflow, infinity, NaN.
void Fill(TestTensor& tensor, Random& random) {
  std::vector<float> values(tensor.view().Elements());
  for (float& v : values) {
    v = random.Normal();
    switch (random.Int(0, 19)) {
      case 0:
        v = 1.00390625f;  // between two bf16 numbers, the lower even
        break;
      case 1:
        v = 1.01171875f;  // the upper even
        break;
      case 2:
        v = 3.4e38f;
        break;
      case 3:
        v = -std::numeric_limits<float>::infinity();
        break;
      case 4:
        v = std::nanf("");
        break;
      default:
        break;
    }
  }
  tensor.Set(values);
}

// Rows for int8 and int4: of ordinary numbers, of ties between whole numbers (with scale 1), of
// zeros, of tiny numbers, with an infinity, with a NaN.
void FillRows(TestTensor& tensor, Random& random) {
  std::vector<float> values(tensor.view().Elements());
  const int64_t dims = tensor.view().shape[2];
  for (size_t row = 0; row < values.size(); row += dims) {
    const int64_t kind = random.Int(0, 9);
    for (int64_t d = 0; d < dims; ++d) {
      float& v = values[row + d];
      v = random.Normal();
      if (kind == 0) v = d == 0 ? -127.0f : static_cast<float>(random.Int(-127, 126)) + 0.5f;
      if (kind == 1) v = 0;
      if (kind == 2) v *= 1e-33f;
    }
    if (kind == 3) values[row + random.Int(0, dims - 1)] = std::numeric_limits<float>::infinity();
    if (kind == 4) values[row + random.Int(0, dims - 1)] = std::nanf("");
  }
  tensor.Set(values);
}

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape,
                DType dtype, const Attributes& attributes = {}) {
  Random random(shape.heads * 1000 + shape.head_dim);
  const PagedBatch batch(shape.block_size,
                         {{.context = 5, .tokens = 1},
                          {.context = 0, .tokens = 3 * shape.block_size + 3},
                          {.context = shape.block_size - 2, .tokens = 5},
                          {.context = 0, .tokens = 0},
                          {.context = 2 * shape.block_size, .tokens = 40}},
                         random);
  const int64_t tokens = batch.view().num_tokens;
  // Some tokens are not to be stored.
  std::vector<int32_t> slots(batch.view().slot_mapping, batch.view().slot_mapping + tokens);
  slots[0] = -1;
  slots[7] = -1;
  BatchView view = batch.view();
  view.slot_mapping = slots.data();
  TestTensor k(DType::kF32, {tokens, shape.heads, shape.head_dim}, {.row_padding_bytes = 12});
  TestTensor v(DType::kF32, {tokens, shape.heads, shape.value_dim}, {.misalign_bytes = 4});
  (HasKvScales(dtype) ? FillRows : Fill)(k, random);
  (HasKvScales(dtype) ? FillRows : Fill)(v, random);
  TestTensor cache(dtype, {batch.num_blocks(), KvBlockElements(dtype, {shape.heads, shape.head_dim},
                                                               shape.block_size)});
  const TensorView inputs[] = {k.view(), v.view(), cache.view()};
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &view};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool one({.num_threads = 1});
  cache.Poison();
  RunKernel(conformance::ReferenceKernel(op), call, one);
  const std::vector<uint8_t> expected = cache.Bytes();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      device::ThreadPool pool({.num_threads = threads});
      cache.Poison();
      RunKernel(*kernel, call, pool);
      EXPECT_TRUE(cache.Bytes() == expected)
          << kernel->name << " head_dim " << shape.head_dim << " block " << shape.block_size;
      EXPECT_TRUE(cache.GuardsIntact() && k.GuardsIntact() && v.GuardsIntact()) << kernel->name;
    }
  }
  conformance::CheckActTypes(
      {.op = op, .caps = caps, .call = call, .act_inputs = 0b11, .cache = &cache});
}

}  // namespace

void CheckKvWriteConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape shapes[] = {{3, 64, 16}, {1, 80, 16}, {2, 256, 16}, {2, 72, 32},
                          {1, 5, 16},  {2, 24, 8},  {1, 16, 1},   {2, 33, 48},
                          {2, 24, 16, 16}, {3, 33, 16, 7}};
  Attributes scaled, rows;
  rows.Set(kKeysInRows, 1);
  scaled.Set("k_scale", 0.37);
  scaled.Set("v_scale", 3.1);
  for (const Shape& shape : shapes) {
    CheckShape(op, caps, shape, DType::kF32);
    CheckShape(op, caps, shape, DType::kBF16);
    CheckShape(op, caps, shape, DType::kI8);
    if (shape.block_size % 4 == 0) {
      CheckShape(op, caps, shape, DType::kU4);
      CheckShape(op, caps, shape, DType::kK8V4);
    }
    CheckShape(op, caps, shape, DType::kF8E4M3);
    CheckShape(op, caps, shape, DType::kF8E4M3, scaled);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3}) {
      CheckShape(op, caps, shape, dtype, rows);
    }
  }
}

}  // namespace pagemill::ops
