// What every kernel of `rotary_kv_write` has to pass: the same bits as `rotary` followed by
// `kv_write`.
#include <cmath>
#include <cstring>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

using conformance::PagedBatch;
using conformance::PagedRequest;
using conformance::Random;
using conformance::RunKernel;
using conformance::TestTensor;

struct Shape {
  int64_t q_heads, k_heads, head_dim, pairs;
  int32_t block_size;
  bool grid = false;  // positions of three dimensions, interleaved over the pairs
};

// A step and its operands.
struct Case {
  Case(const Shape& shape, DType act, DType cache_dtype, const std::vector<PagedRequest>& requests)
      : batch(shape.block_size, requests, Random(shape.head_dim)),
        slots(batch.view().slot_mapping, batch.view().slot_mapping + batch.view().num_tokens),
        q(act, {tokens(), shape.q_heads, shape.head_dim}, {.row_padding_bytes = 12}),
        k(act, {tokens(), shape.k_heads, shape.head_dim}, {.misalign_bytes = 4}),
        v(act, {tokens(), shape.k_heads, shape.head_dim}, {.row_padding_bytes = 4}),
        inv_freq(shape.grid ? TestTensor(DType::kF32, {kGridDims, shape.pairs})
                            : TestTensor(DType::kF32, {shape.pairs})),
        positions(shape.grid ? TestTensor(DType::kI32, {tokens(), kGridDims})
                             : TestTensor(DType::kI32, {tokens()})),
        cache(cache_dtype,
              {batch.num_blocks(),
               KvBlockElements(cache_dtype, {shape.k_heads, shape.head_dim}, shape.block_size)}),
        q_out(act, {tokens(), shape.q_heads, shape.head_dim}, {.misalign_bytes = 4}),
        k_out(act, {tokens(), shape.k_heads, shape.head_dim}, {.row_padding_bytes = 4}) {
    Random random(shape.q_heads);
    for (TestTensor* tensor : {&q, &k, &v}) tensor->FillUniform(random, -2, 2);
    std::vector<float> frequencies;
    for (int64_t i = 0; i < shape.pairs; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(shape.pairs);
      frequencies.push_back(static_cast<float>(std::pow(10000.0, -exponent)));
    }
    if (shape.grid) {
      SetGrid(frequencies);
    } else {
      inv_freq.Set(frequencies);
      positions.SetInt({batch.view().positions, static_cast<size_t>(tokens())});
    }
    slots[0] = -1;  // not stored; so is another token, in the middle of a run
    if (tokens() > 7) slots[7] = -1;
    view = batch.view();
    view.slot_mapping = slots.data();
  }
  void SetGrid(const std::vector<float>& frequencies) {
    std::vector<int32_t> own;
    std::vector<float> by_dim;
    for (int32_t t = 0; t < tokens(); ++t) {
      for (int32_t d = 0; d < kGridDims; ++d) own.push_back(batch.view().positions[t] + d * t);
    }
    for (size_t d = 0; d < kGridDims; ++d) {
      for (size_t i = 0; i < frequencies.size(); ++i) {
        by_dim.push_back(i % kGridDims == d ? frequencies[i] : 0.0f);
      }
    }
    positions.SetInt(own);
    inv_freq.Set(by_dim);
  }
  int64_t tokens() const { return batch.view().num_tokens; }
  void Poison() {
    for (TestTensor* tensor : {&cache, &q_out, &k_out}) tensor->Poison();
  }
  std::vector<uint8_t> Results() const {
    std::vector<uint8_t> bytes;
    for (const TestTensor* tensor : {&cache, &q_out, &k_out}) {
      const std::vector<uint8_t> more = tensor->Bytes();
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    return bytes;
  }
  bool GuardsIntact() const {
    return q.GuardsIntact() && k.GuardsIntact() && v.GuardsIntact() && cache.GuardsIntact() &&
           q_out.GuardsIntact() && k_out.GuardsIntact();
  }

  PagedBatch batch;
  std::vector<int32_t> slots;
  TestTensor q, k, v, inv_freq, positions, cache, q_out, k_out;
  BatchView view;
};

const OpDefinition& Definition(std::span<const OpDefinition> ops, std::string_view name) {
  const auto found = FindOp(ops, name);
  EXPECT_TRUE(found.ok()) << name;
  return **found;
}

// The results of the kernels `name` of the two single ops.
std::vector<uint8_t> RunSingleOps(std::span<const OpDefinition> ops,
                                  const device::Capabilities& caps, Case& c,
                                  const Attributes& attributes, std::string_view name) {
  device::ThreadPool pool({.num_threads = 1});
  c.Poison();
  const TensorView rotary_in[] = {c.q.view(), c.k.view(), c.positions.view(), c.inv_freq.view()};
  const TensorView rotary_out[] = {c.q_out.view(), c.k_out.view()};
  const TensorView kv_in[] = {c.k_out.view(), c.v.view(), c.cache.view()};
  const OpCall rotary{.inputs = rotary_in, .outputs = rotary_out, .attributes = &attributes};
  const OpCall kv{.inputs = kv_in, .outputs = {}, .attributes = &attributes, .batch = &c.view};
  const auto rotary_row = ChooseKernel(Definition(ops, "rotary"), caps, rotary, {.name = name});
  const auto kv_row = ChooseKernel(Definition(ops, "kv_write"), caps, kv, {.name = name});
  EXPECT_TRUE(rotary_row.ok() && kv_row.ok()) << name;
  RunKernel(**rotary_row, rotary, pool);
  RunKernel(**kv_row, kv, pool);
  return c.Results();
}

void CopyRows(const TensorView& from, const TensorView& to) {
  for (int64_t i = 0; i < from.shape[0]; ++i) {
    std::memcpy(to.Row<std::byte>(i), from.Row<std::byte>(i),
                static_cast<size_t>(RowBytes(from.dtype, from.RowElements())));
  }
}

void CheckCase(std::span<const OpDefinition> ops, const device::Capabilities& caps, Case& c,
               bool interleaved) {
  const OpDefinition& op = Definition(ops, "rotary_kv_write");
  Attributes attributes;
  attributes.Set("interleaved", interleaved ? 1 : 0);
  attributes.Set("mscale", 1.25);
  attributes.Set("k_scale", 0.37);
  attributes.Set("v_scale", 3.1);
  TensorView inputs[] = {c.q.view(),        c.k.view(), c.positions.view(),
                         c.inv_freq.view(), c.v.view(), c.cache.view()};
  const TensorView outputs[] = {c.q_out.view(), c.k_out.view()};
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &c.view};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    const std::vector<uint8_t> expected = RunSingleOps(ops, caps, c, attributes, kernel->name);
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      device::ThreadPool pool({.num_threads = threads});
      c.Poison();
      RunKernel(*kernel, call, pool);
      EXPECT_TRUE(c.Results() == expected) << kernel->name << " with " << threads << " threads";
      c.Poison();  // in place
      CopyRows(c.q.view(), c.q_out.view());
      CopyRows(c.k.view(), c.k_out.view());
      inputs[0] = outputs[0];
      inputs[1] = outputs[1];
      RunKernel(*kernel, call, pool);
      inputs[0] = c.q.view();
      inputs[1] = c.k.view();
      EXPECT_TRUE(c.Results() == expected) << kernel->name << " in place";
    }
    EXPECT_TRUE(c.GuardsIntact()) << kernel->name;
  }
}

}  // namespace

void CheckRotaryKvWriteConformance(std::span<const OpDefinition> ops,
                                   const device::Capabilities& caps) {
  const Shape shapes[] = {{9, 3, 64, 32, 16},      {4, 1, 80, 16, 16}, {3, 1, 10, 5, 8},
                          {2, 2, 72, 36, 32},      {1, 1, 33, 7, 48},  {1, 1, 16, 8, 1},
                          {2, 1, 64, 32, 16, true}};
  for (const Shape& shape : shapes) {
    const std::vector<PagedRequest> prompts = {{.context = 5, .tokens = 1},
                                               {.context = 0, .tokens = 2 * shape.block_size + 3},
                                               {.context = shape.block_size - 1, .tokens = 5},
                                               {.context = 0, .tokens = 0}};
    const std::vector<PagedRequest> decode(40, {.context = 7, .tokens = 1});
    for (DType dtype :
         {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kU4, DType::kK8V4}) {
      if (HasInt4Rows(dtype) && shape.block_size % 4 != 0) continue;
      Case of_prompts(shape, DType::kF32, dtype, prompts);
      CheckCase(ops, caps, of_prompts, /*interleaved=*/false);
      CheckCase(ops, caps, of_prompts, /*interleaved=*/true);
      Case of_decode(shape, DType::kF32, dtype, decode);
      CheckCase(ops, caps, of_decode, /*interleaved=*/false);
      // The rounded k is stored.
      for (DType act : {DType::kBF16, DType::kF16}) {
        Case narrow(shape, act, dtype, prompts);
        CheckCase(ops, caps, narrow, /*interleaved=*/false);
      }
    }
  }
}

}  // namespace pagemill::ops
