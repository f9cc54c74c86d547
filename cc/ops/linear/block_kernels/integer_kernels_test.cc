// Sums of integers are exact, so all kernel sets of block formats give the same bits: those of this
// folder against one that multiplies without a bound on sums, panel by panel. Weights are random,
// or the largest that panels can hold against x at its ends, where narrow sums would overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/linear/block_panel.h"
#include "cc/ops/linear/packed_kernel_set.h"

namespace pagemill::ops::linear {
namespace {

using conformance::BitEqual;
using conformance::Random;
using conformance::TestTensor;

constexpr int64_t kYStride = 37;  // more than a panel's rows: what lies between must stay

// A kernel set, and one that has to give the same bits.
struct Pair {
  std::string name;
  const PackedKernelSet* tested;
  const PackedKernelSet* expected;
};

// Those that this machine can run.
std::vector<Pair> Pairs() {
  const device::Capabilities caps = device::DetectCapabilities();
  std::vector<Pair> pairs;
#if defined(__x86_64__)
  if (caps.avx2 && caps.avx512_vnni) {
    pairs.push_back({"avx2_int8", &kAvx2Int8Kernels, &kAvx512VnniKernels});
    pairs.push_back({"avx2_int16", &kAvx2Int16Kernels, &kAvx512VnniInt16Kernels});
  }
  if (caps.avx2 && caps.avx_vnni) {
    pairs.push_back({"avx_vnni_int8", &kAvxVnniInt8Kernels, &kAvx2Int8Kernels});
    pairs.push_back({"avx_vnni_int16", &kAvxVnniInt16Kernels, &kAvx2Int16Kernels});
  }
#elif defined(__aarch64__)
  if (caps.asimd_i8mm && caps.asimd_dotprod) {
    pairs.push_back({"asimd_i8mm", &kAsimdI8mmKernels, &kAsimdDotprodKernels});
    pairs.push_back({"asimd_i8mm_int16", &kAsimdI8mmInt16Kernels, &kAsimdDotprodInt16Kernels});
  }
#endif
  return pairs;
}

// `bytes` between guards, at a 64-byte boundary, all ones, which is NaN: padding that nobody wrote
// is noticed.
TestTensor Aligned(int64_t bytes) {
  Random random(0);
  TestTensor memory(DType::kU8, {1, bytes});
  memory.FillUniform(random, 255, 255);
  return memory;
}

struct Operands {
  DType dtype;
  int64_t n;
  int64_t m;
  int64_t k;
  TestTensor x;
  TestTensor w;
  TestTensor bias;
  bool has_bias;
  bool has_largest_weights;
};

Operands RandomOperands(DType dtype, int64_t n, int64_t m, Random& random) {
  const int64_t k = Info(dtype).block_elements == 32 ? 160 : 512;
  Operands o = {dtype,
                n,
                m,
                k,
                TestTensor(DType::kF32, {n, k}),
                TestTensor(dtype, {m, k}),
                TestTensor(DType::kF32, {m}),
                m % 2 == 1,
                false};
  o.x.FillUniform(random, -2, 2);
  o.w.FillUniform(random, -1, 1);
  o.bias.FillUniform(random, -1, 1);
  return o;
}

// Sets all bits of the values of a panel.
void MakeLargest(DType dtype, int64_t k, uint8_t* panel) {
  const BlockPanelLayout layout = BlockPanelLayoutOf(dtype);
  for (int64_t block = 0; block < k / kPanelBlock; ++block) {
    if (block % kRecordsPerHead == 0) panel += layout.head_bytes;
    std::memset(panel, 0xff, layout.scales);
    panel += layout.record_bytes;
  }
}

// [n, kYStride] floats, NaN beyond m.
std::vector<float> Product(const PackedKernelSet& kernels, const Operands& o) {
  const TestTensor panel = Aligned(kernels.panel_bytes(o.dtype, o.k));
  const TestTensor strip = Aligned(kernels.strip_bytes(o.dtype, o.n, o.k));
  const TensorView rows = o.w.view();
  uint8_t* panel_bytes = panel.view().Row<uint8_t>(0);
  kernels.pack({o.dtype, rows.Row<uint8_t>(0), rows.row_stride_bytes, o.k}, o.m, panel_bytes);
  if (o.has_largest_weights) MakeLargest(o.dtype, o.k, panel_bytes);
  kernels.prepare(o.dtype, {o.x.view().Row<float>(0), o.k, o.n, o.k}, strip.view().Row<uint8_t>(0));
  std::vector<float> y(o.n * kYStride, std::nanf(""));
  kernels.multiply({o.dtype, panel_bytes, strip.view().Row<uint8_t>(0),
                    o.has_bias ? o.bias.view().Row<float>(0) : nullptr, y.data(), kYStride, o.n,
                    o.m, o.k});
  EXPECT_TRUE(panel.GuardsIntact() && strip.GuardsIntact());
  return y;
}

class IntegerKernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (Pairs().empty()) GTEST_SKIP() << "needs two kernel sets to compare";
  }
};

TEST_P(IntegerKernelsTest, GiveTheSameBits) {
  Random random(GetParam());
  for (DType dtype : kWeightDTypes) {
    if (!IsBlockFormat(dtype)) continue;
    for (int64_t m : {1, 16, 31, 32}) {
      const Operands o = RandomOperands(dtype, GetParam(), m, random);
      for (const Pair& pair : Pairs()) {
        EXPECT_TRUE(BitEqual(Product(*pair.tested, o), Product(*pair.expected, o)))
            << pair.name << " " << Info(dtype).name << " m=" << m;
      }
    }
  }
}

TEST_P(IntegerKernelsTest, SumsOfTheLargestProductsAreExact) {
  Random random(GetParam());
  // Of 15 bits: 127 * 128, and those that have the largest upper and lower planes.
  for (int32_t integer : {16256, -16256, 16192, -16192, 16191, 63, -64}) {
    for (DType dtype : kWeightDTypes) {
      if (!IsBlockFormat(dtype)) continue;
      Operands o = RandomOperands(dtype, GetParam(), 32, random);
      o.has_largest_weights = true;
      std::vector<float> x(o.n * o.k, static_cast<float>(integer));
      for (size_t i = 0; i < x.size(); i += 32) x[i] = integer < 0 ? -16256 : 16256;
      o.x.Set(x);
      for (const Pair& pair : Pairs()) {
        EXPECT_TRUE(BitEqual(Product(*pair.tested, o), Product(*pair.expected, o)))
            << pair.name << " " << Info(dtype).name << " x=" << integer;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, IntegerKernelsTest, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 31, 32));

}  // namespace
}  // namespace pagemill::ops::linear
