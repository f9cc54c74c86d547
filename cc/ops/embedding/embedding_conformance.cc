// What every kernel of `embedding` that supports the call has to pass: every weight dtype, empty
// input, misaligned and padded operands, a scale, 1 and 3 threads; bit for bit, since the contract
// is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/quantized/random_packed.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

// Every row of the table against the contract's formula, bit for bit.
void CheckGather(const OpDefinition& op, const device::Capabilities& caps, DType dtype, int64_t n,
                 double scale, int64_t outside = -1) {
  SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(n));
  const int64_t vocab = 23;
  const int64_t hidden = IsBlockFormat(dtype) ? 512 : 33;
  Random random(5);
  TestTensor ids(DType::kI32, {n}, {.misalign_bytes = 4});
  // A mapped file has elements at odd places. GPUs load none there, and have copies.
  const bool on_gpu = caps.kind == device::DeviceKind::kGpu;
  TestTensor w(dtype, {vocab, hidden}, {.misalign_bytes = on_gpu && dtype == DType::kF32 ? 4 : 2});
  TestTensor y(DType::kF32, {n, hidden}, {.misalign_bytes = 4, .row_padding_bytes = 12});
  const bool all = outside < 0;
  ids.FillUniform(random, all ? 0 : -9, all ? vocab - 1 : vocab + 9);
  w.FillUniform(random, -1, 1);
  std::vector<float> expected(n * hidden);
  for (int64_t i = 0; i < n; ++i) {
    int64_t id = *(ids.view().Row<int32_t>(i));
    if (id < 0 || id >= vocab) id = outside;
    DequantizeRow(dtype, w.view().Row<uint8_t>(id), hidden, &expected[i * hidden]);
    for (int64_t j = 0; j < hidden; ++j) expected[i * hidden + j] *= static_cast<float>(scale);
  }
  Attributes attributes;
  if (scale != 1.0) attributes.Set("scale", scale);
  if (!all) attributes.Set("outside", static_cast<double>(outside));
  const TensorView inputs[] = {ids.view(), w.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  conformance::CheckBits(op, caps, call, y, expected);
  conformance::CheckActTypes({.op = op, .caps = caps, .call = call});
}

// Rows of packed integers, for kernels that read them as they are stored.
void CheckPacked(const OpDefinition& op, const device::Capabilities& caps,
                 const conformance::PackedKind& kind) {
  Random random(6);
  const conformance::RandomPacked w(kind, conformance::kNoStack, 48, 96, random);
  TestTensor ids(DType::kI32, {4}), y(DType::kF32, {4, 96});
  const std::vector<int32_t> rows = {0, 47, 13, 13};
  ids.SetInt(rows);
  std::vector<float> expected(4 * 96);
  for (size_t i = 0; i < rows.size(); ++i) {
    ReadWeightRow(w.view(), /*matrix=*/0, rows[i], &expected[i * 96]);
  }
  const Attributes attributes;
  const TensorView inputs[] = {ids.view(), w.view()}, outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    if (kernel->packing != nullptr) continue;
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), expected)) << kernel->name << NameOf(kind);
  }
}

}  // namespace

void CheckEmbeddingConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (DType dtype : kWeightDTypes) {
    for (int64_t n : {0, 1, 7, 67}) {
      CheckGather(op, caps, dtype, n, 1.0);
      CheckGather(op, caps, dtype, n, std::sqrt(640.0));  // Gemma's: not representable in float
      CheckGather(op, caps, dtype, n, 1.0, /*outside=*/3);
    }
  }
  for (const conformance::PackedKind& kind : conformance::kPackedKinds) CheckPacked(op, caps, kind);
}

}  // namespace pagemill::ops
