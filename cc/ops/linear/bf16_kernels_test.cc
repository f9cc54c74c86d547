// The packed GEMMs of bf16 weights, slice by slice. The AMX GEMM runs over emulated tiles, so it is
// tested on every machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/linear_amx_inl.h"
#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/tiles/emulated_tiles.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {
namespace {

using conformance::BitEqual;
using conformance::Random;
using conformance::TestTensor;

struct NamedSet {
  std::string name;
  const PackedGemm* kernels;
};

std::vector<NamedSet> SetsOfThisMachine() {
  static constexpr PackedGemm kEmulated = AmxBf16<EmulatedTiles>::kKernels;
  std::vector<NamedSet> sets = {{"emulated amx_bf16", &kEmulated}};
#if defined(__x86_64__)
  const device::Capabilities caps = device::DetectCapabilities();
  if (caps.cpu.avx512_bf16) sets.push_back({"avx512_bf16", &kAvx512Bf16Kernels});
  if (caps.cpu.amx_bf16) sets.push_back({"amx_bf16", &kAmxBf16Kernels});
#elif defined(__aarch64__)
  const device::Capabilities caps = device::DetectCapabilities();
  if (caps.cpu.asimd_bf16) sets.push_back({"asimd_bf16", &kAsimdBf16Kernels});
#endif
  return sets;
}

// `bytes` between guards, 64-byte aligned, filled with ones (NaN) so that unwritten padding is
// detected.
[[maybe_unused]] TestTensor Aligned(int64_t bytes) {
  Random random(0);
  TestTensor memory(DType::kU8, {1, bytes});
  memory.FillUniform(random, 255, 255);
  return memory;
}

constexpr int64_t kYStride = 37;  // more than a slice's rows; the gap must not be written

// A random slice with its bias and rows of x.
struct SliceCase {
  SliceCase(int64_t n, int64_t m, int64_t k, Random& random) : n(n), m(m), k(k) {
    for (int64_t i = 0; i < n * k; ++i) x.push_back(random.Uniform(-2, 2));
    for (int64_t i = 0; i < m * k; ++i) w.push_back(FloatToBf16(random.Uniform(-1, 1)));
    for (int64_t i = 0; i < m; ++i) bias.push_back(random.Uniform(-1, 1));
  }

  // Rows [begin, end) of x as one chunk; [end - begin, kYStride] floats, NaN beyond m.
  std::vector<float> Run(const PackedGemm& kernels, int64_t begin, int64_t end,
                         bool has_bias) const {
    const TestTensor slice = Aligned(kernels.slice_bytes(DType::kBF16, k));
    const TestTensor chunk = Aligned(kernels.chunk_bytes(DType::kBF16, end - begin, k));
    const auto* rows = reinterpret_cast<const uint8_t*>(w.data());
    kernels.pack({DType::kBF16, rows, 2 * k, k}, m, slice.view().Row<uint8_t>(0));
    kernels.prepare(DType::kBF16, {x.data() + begin * k, k, end - begin, k},
                    chunk.view().Row<uint8_t>(0));
    std::vector<float> y((end - begin) * kYStride, std::nanf(""));
    kernels.multiply({DType::kBF16, slice.view().Row<uint8_t>(0), chunk.view().Row<uint8_t>(0),
                      has_bias ? bias.data() : nullptr, y.data(), kYStride, end - begin, m, k});
    EXPECT_TRUE(slice.GuardsIntact() && chunk.GuardsIntact());
    return y;
  }

  int64_t n, m, k;
  std::vector<float> x;
  std::vector<uint16_t> w;
  std::vector<float> bias;
};

void CheckValues(const PackedGemm& kernels, const SliceCase& p, bool has_bias) {
  const std::vector<float> y = p.Run(kernels, 0, p.n, has_bias);
  for (int64_t n = 0; n < p.n; ++n) {
    for (int64_t m = 0; m < kYStride; ++m) {
      const float actual = y[n * kYStride + m];
      if (m >= p.m) {
        ASSERT_TRUE(std::isnan(actual)) << "y[" << n << ", " << m << "] is not the slice's";
        continue;
      }
      double sum = has_bias ? p.bias[m] : 0.0;
      double magnitude = std::abs(sum);
      for (int64_t k = 0; k < p.k; ++k) {
        const double product =
            static_cast<double>(p.x[n * p.k + k]) * Bf16ToFloat(p.w[m * p.k + k]);
        sum += product;
        magnitude += std::abs(product);
      }
      // Not `>`: NaN must fail.
      ASSERT_TRUE(std::abs(actual - sum) <= LinearBf16ErrorBound(p.k) * magnitude)
          << "y[" << n << ", " << m << "] is " << actual << ", expected " << sum;
    }
  }
}

TEST(Bf16Kernels, AreCloseToTheExactProduct) {
  Random random(1);
  for (const NamedSet& set : SetsOfThisMachine()) {
    for (int64_t k : {1, 2, 15, 32, 33, 47, 64, 575, 1536}) {
      for (int64_t m : {1, 15, 16, 17, 31, 32}) {
        for (int64_t n : {1, 3, 12, 17, 32, 35}) {
          SCOPED_TRACE(set.name + " n=" + std::to_string(n) + " m=" + std::to_string(m) +
                       " k=" + std::to_string(k));
          CheckValues(*set.kernels, SliceCase(n, m, k, random), (n + m) % 2 == 0);
        }
      }
    }
  }
}

void CheckHeights(const NamedSet& set, const SliceCase& p, int64_t step) {
  std::vector<float> one_by_one;
  for (int64_t n = 0; n < p.n; ++n) {
    const std::vector<float> row = p.Run(*set.kernels, n, n + 1, true);
    one_by_one.insert(one_by_one.end(), row.begin(), row.end());
  }
  for (int64_t height = p.n; height > 0; height -= step) {
    const std::vector<float> y = p.Run(*set.kernels, p.n - height, p.n, true);
    const std::vector<float> expected(one_by_one.end() - height * kYStride, one_by_one.end());
    ASSERT_TRUE(BitEqual(y, expected)) << set.name << ", " << height << " rows of " << p.k;
  }
}

TEST(Bf16Kernels, RowsHaveTheSameBitsInChunksOfAnyHeight) {
  Random random(2);
  for (const NamedSet& set : SetsOfThisMachine()) {
    const int64_t rows = set.kernels->max_chunk_rows;
    CheckHeights(set, SliceCase(rows, 21, 77, random), 1);
    CheckHeights(set, SliceCase(rows, 32, 611, random),
                 15);  // with several bands, k is divided into parts
  }
}

// Values are exact in bf16 and sums in float: nothing is rounded.
TEST(Bf16Kernels, SmallIntegersAreExact) {
  Random random(3);
  for (const NamedSet& set : SetsOfThisMachine()) {
    SliceCase p(19, 32, 96, random);
    for (float& x : p.x) x = static_cast<float>(random.Int(-255, 255));
    for (uint16_t& w : p.w) w = FloatToBf16(static_cast<float>(random.Int(-255, 255)));
    const std::vector<float> y = p.Run(*set.kernels, 0, p.n, false);
    for (int64_t n = 0; n < p.n; ++n) {
      for (int64_t m = 0; m < p.m; ++m) {
        float sum = 0;
        for (int64_t k = 0; k < p.k; ++k) sum += p.x[n * p.k + k] * Bf16ToFloat(p.w[m * p.k + k]);
        ASSERT_EQ(y[n * kYStride + m], sum) << set.name;
      }
    }
  }
}

// The product of a single element shows the rounding of x: to nearest, ties to even.
TEST(Bf16Kernels, RoundActivationsToTheNearestEven) {
  const float inputs[] = {1.0f,     1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.1p-8f,
                          -0x1p-8f, INFINITY,    -INFINITY,   0x1.ffp127f};
  Random random(4);
  for (const NamedSet& set : SetsOfThisMachine()) {
    SliceCase p(std::size(inputs), 1, 1, random);
    std::copy(std::begin(inputs), std::end(inputs), p.x.begin());
    p.w[0] = FloatToBf16(1.0f);
    const std::vector<float> y = p.Run(*set.kernels, 0, p.n, false);
    for (int64_t n = 0; n < p.n; ++n) {
      EXPECT_EQ(y[n * kYStride], Bf16ToFloat(FloatToBf16(inputs[n]))) << set.name << " " << n;
    }
  }
}

TEST(Bf16Kernels, NaNReachesTheOutputsOfItsRowOnly) {
  Random random(5);
  for (const NamedSet& set : SetsOfThisMachine()) {
    SliceCase p(20, 18, 41, random);
    p.x[17 * p.k + 40] = std::nanf("");
    const std::vector<float> y = p.Run(*set.kernels, 0, p.n, true);
    for (int64_t n = 0; n < p.n; ++n) {
      for (int64_t m = 0; m < p.m; ++m) {
        EXPECT_EQ(std::isnan(y[n * kYStride + m]), n == 17) << set.name << " " << n << " " << m;
      }
    }
  }
}

TEST(Bf16Kernels, DividingKKeepsTheBits) {
  Random random(6);
  for (const NamedSet& set : SetsOfThisMachine()) {
    const PackedGemm& kernels = *set.kernels;
    if (kernels.part_multiple == 0) continue;
    for (int64_t n : {1, 12, 13, 30, 50}) {
      const SliceCase p(n, n % 2 == 0 ? 32 : 21, 203, random);
      const int64_t first = 3 * kernels.part_multiple;
      const TestTensor slice = Aligned(kernels.slice_bytes(DType::kBF16, p.k));
      const TestTensor chunk = Aligned(kernels.chunk_bytes(DType::kBF16, n, p.k));
      uint8_t* const weights = slice.view().Row<uint8_t>(0);
      kernels.pack({DType::kBF16, reinterpret_cast<const uint8_t*>(p.w.data()), 2 * p.k, p.k}, p.m,
                   weights);
      std::vector<float> y(n * kYStride, std::nanf(""));
      PackedProduct product = {
          DType::kBF16, weights, chunk.view().Row<uint8_t>(0), nullptr, y.data(), kYStride, n,
          p.m,          first};
      product.prefetch[0] = {weights, weights + 200};
      product.prefetch[1] = {weights, weights + 64};
      kernels.prepare(DType::kBF16, {p.x.data(), p.k, n, first}, chunk.view().Row<uint8_t>(0));
      kernels.multiply(product);
      product.weights += kernels.slice_bytes(DType::kBF16, first);
      product.k = p.k - first;
      product.bias = p.bias.data();
      product.adds = true;
      kernels.prepare(DType::kBF16, {p.x.data() + first, p.k, n, p.k - first},
                      chunk.view().Row<uint8_t>(0));
      kernels.multiply(product);
      EXPECT_TRUE(BitEqual(y, p.Run(kernels, 0, n, true))) << set.name << " n=" << n;
    }
  }
}

#if defined(__x86_64__)
// Conformance with k divided wherever possible.
const PackedGemm kDivided = [] {
  PackedGemm divided = kAvx512Bf16Kernels;
  divided.max_whole_bytes = 0;
  return divided;
}();

TEST(Bf16Kernels, DividedRowsConform) {
  if (!device::DetectCapabilities().cpu.avx512_bf16) GTEST_SKIP() << "needs AVX-512 with BF16";
  static constexpr WeightPacking kPacking = PackingOfGemm<&kDivided>("divided");
  const auto bf16_weights = [](const device::Capabilities&, const OpCall& call) {
    return HasF32Activations(call) && call.inputs[1].dtype == DType::kBF16;
  };
  const Kernel kernels[] = {
      PackedKernel<&kDivided>("divided", 1, bf16_weights, Precision::kBf16, &kPacking),
      conformance::ReferenceKernel(LinearOp())};
  CheckLinearConformance({"linear", LinearOp().check, kernels}, device::Capabilities());
}
#endif

// A thread configures tiles once for all slices and chunks of equal height.
TEST(Bf16Kernels, TilesAreConfiguredOnceARunOfProducts) {
  static constexpr PackedGemm kEmulated = AmxBf16<EmulatedTiles>::kKernels;
  Random random(8);
  const SliceCase p(16, 32, 64, random);
  const TestTensor slice = Aligned(kEmulated.slice_bytes(DType::kBF16, p.k));
  const TestTensor chunk = Aligned(kEmulated.chunk_bytes(DType::kBF16, p.n, p.k));
  kEmulated.pack({DType::kBF16, reinterpret_cast<const uint8_t*>(p.w.data()), 2 * p.k, p.k}, p.m,
                 slice.view().Row<uint8_t>(0));
  kEmulated.prepare(DType::kBF16, {p.x.data(), p.k, p.n, p.k}, chunk.view().Row<uint8_t>(0));
  const std::vector<float> expected = p.Run(kEmulated, 0, p.n, true);
  EXPECT_FALSE(EmulatedTiles::Configured());

  const int64_t before = EmulatedTiles::Configurations();
  int64_t tile_config = 0;
  for (int i = 0; i < 3; ++i) {
    std::vector<float> y(p.n * kYStride, std::nanf(""));
    PackedProduct product = {DType::kBF16,
                             slice.view().Row<uint8_t>(0),
                             chunk.view().Row<uint8_t>(0),
                             p.bias.data(),
                             y.data(),
                             kYStride,
                             p.n,
                             p.m,
                             p.k};
    product.tile_config = &tile_config;
    kEmulated.multiply(product);
    EXPECT_TRUE(BitEqual(y, expected));
  }
  EXPECT_EQ(EmulatedTiles::Configurations(), before + 1);
  EXPECT_TRUE(EmulatedTiles::Configured());
  kEmulated.release_tiles();
  EXPECT_FALSE(EmulatedTiles::Configured());
}

// Conformance over emulated tiles.
TEST(Bf16Kernels, TilesConform) {
  static constexpr PackedGemm kEmulated = AmxBf16<EmulatedTiles>::kKernels;
  static constexpr WeightPacking kPacking = PackingOfGemm<&kEmulated>("tiles");
  const auto bf16_weights = [](const device::Capabilities&, const OpCall& call) {
    return HasF32Activations(call) && call.inputs[1].dtype == DType::kBF16;
  };
  const Kernel kernels[] = {
      PackedKernel<&kEmulated>("emulated", 1, bf16_weights, Precision::kBf16, &kPacking),
      conformance::ReferenceKernel(LinearOp())};
  CheckLinearConformance({"linear", LinearOp().check, kernels}, device::Capabilities());
  EXPECT_FALSE(EmulatedTiles::Configured());
}

}  // namespace
}  // namespace pagemill::ops::linear
