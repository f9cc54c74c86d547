// The packed GEMMs of block formats, slice by slice, with k in one part and in several.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/linear/packed_gemm_kernels.h"

namespace pagemill::ops::linear {
namespace {

using conformance::BitEqual;
using conformance::Random;
using conformance::TestTensor;

constexpr int64_t kYStride = 37;  // more than a slice's rows; the gap must not be written

// `bytes` between guards, 64-byte aligned, filled with ones (NaN) so that unwritten padding is
// detected.
[[maybe_unused]] TestTensor Aligned(int64_t bytes) {
  Random random(0);
  TestTensor memory(DType::kU8, {1, bytes});
  memory.FillUniform(random, 255, 255);
  return memory;
}

struct Case {
  DType dtype;
  int64_t n;
  int64_t m;
  int64_t k;
  bool has_bias;
};

// [n, kYStride] floats, NaN beyond m.
[[maybe_unused]] std::vector<float> Product(const PackedGemm& kernels, const Case& c,
                                            const TestTensor& x, const TestTensor& w,
                                            const TestTensor& bias) {
  const TestTensor slice = Aligned(kernels.slice_bytes(c.dtype, c.k));
  const TestTensor chunk = Aligned(kernels.chunk_bytes(c.dtype, c.n, c.k));
  const TensorView rows = w.view();
  kernels.pack({c.dtype, rows.Row<uint8_t>(0), rows.row_stride_bytes, c.k}, c.m,
               slice.view().Row<uint8_t>(0));
  kernels.prepare(c.dtype, {x.view().Row<float>(0), c.k, c.n, c.k}, chunk.view().Row<uint8_t>(0));
  std::vector<float> y(c.n * kYStride, std::nanf(""));
  kernels.multiply({c.dtype, slice.view().Row<uint8_t>(0), chunk.view().Row<uint8_t>(0),
                    c.has_bias ? bias.view().Row<float>(0) : nullptr, y.data(), kYStride, c.n, c.m,
                    c.k});
  EXPECT_TRUE(slice.GuardsIntact() && chunk.GuardsIntact());
  return y;
}

#if defined(__x86_64__)
// The same with k in two parts, the first of `first` elements.
std::vector<float> ProductInParts(const PackedGemm& kernels, const Case& c, int64_t first,
                                  const TestTensor& x, const TestTensor& w,
                                  const TestTensor& bias) {
  const TestTensor slice = Aligned(kernels.slice_bytes(c.dtype, c.k));
  const TestTensor chunk = Aligned(kernels.chunk_bytes(c.dtype, c.n, c.k));
  const TensorView rows = w.view();
  uint8_t* const weights = slice.view().Row<uint8_t>(0);
  uint8_t* const prepared = chunk.view().Row<uint8_t>(0);
  kernels.pack({c.dtype, rows.Row<uint8_t>(0), rows.row_stride_bytes, c.k}, c.m, weights);
  std::vector<float> y(c.n * kYStride, std::nanf(""));
  PackedProduct product = {c.dtype,  weights, prepared, nullptr, y.data(),
                           kYStride, c.n,     c.m,      first};
  product.prefetch[0] = {weights, weights + 200};
  product.prefetch[1] = {weights, weights + 64};
  kernels.prepare(c.dtype, {x.view().Row<float>(0), c.k, c.n, first}, prepared);
  kernels.multiply(product);
  product.weights += kernels.slice_bytes(c.dtype, first);
  product.k = c.k - first;
  product.adds = true;
  if (c.has_bias) product.bias = bias.view().Row<float>(0);
  kernels.prepare(c.dtype, {x.view().Row<float>(0) + first, c.k, c.n, c.k - first}, prepared);
  kernels.multiply(product);
  return y;
}

TEST(BlockKernels, DividingKKeepsTheBits) {
  const device::Capabilities caps = device::DetectCapabilities();
  if (!caps.cpu.avx512 || !caps.cpu.avx512_vnni) GTEST_SKIP() << "needs AVX-512 with VNNI";
  Random random(7);
  for (DType dtype : kWeightDTypes) {
    if (!IsBlockFormat(dtype)) continue;
    for (int64_t n : {1, 2, 5, 32}) {
      const Case c = {dtype, n, n == 5 ? 19 : 32, 1280, n % 2 == 1};
      SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(n));
      TestTensor x(DType::kF32, {c.n, c.k}), w(dtype, {c.m, c.k}), bias(DType::kF32, {c.m});
      x.FillUniform(random, -2, 2);
      w.FillUniform(random, -1, 1);
      bias.FillUniform(random, -1, 1);
      for (const PackedGemm* set : {&kAvx512VnniKernels, &kAvx512VnniInt16Kernels}) {
        ASSERT_GT(set->part_multiple, 0);
        EXPECT_TRUE(BitEqual(ProductInParts(*set, c, 3 * set->part_multiple, x, w, bias),
                             Product(*set, c, x, w, bias)));
      }
    }
  }
}

// Conformance with k divided wherever possible.
const PackedGemm kDivided = [] {
  PackedGemm divided = kAvx512VnniMixedKernels;
  divided.max_whole_bytes = 0;
  return divided;
}();

TEST(BlockKernels, DividedMixedRowsConform) {
  const device::Capabilities caps = device::DetectCapabilities();
  if (!caps.cpu.avx512 || !caps.cpu.avx512_vnni) GTEST_SKIP() << "needs AVX-512 with VNNI";
  static constexpr WeightPacking kPacking = PackingOfGemm<&kDivided>("divided");
  const auto blocks = [](const device::Capabilities&, const OpCall& call) {
    return HasF32Activations(call) && IsBlockFormat(call.inputs[1].dtype);
  };
  const Kernel kernels[] = {
      PackedKernel<&kDivided>("divided_mixed", 1, blocks, Precision::kMixedBlock, &kPacking),
      conformance::ReferenceKernel(LinearOp())};
  CheckLinearConformance({"linear", LinearOp().check, kernels}, device::Capabilities());
}
#endif

}  // namespace
}  // namespace pagemill::ops::linear
