#include "cc/ops/linear/linear.h"

#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/quantized/random_packed.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/testing/aligned_product.h"
#include "cuda/ops/linear/testing/random_scaled.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::BitEqual;
using ops::conformance::kNoStack;
using ops::conformance::kPackedKinds;
using ops::conformance::Random;
using ops::conformance::RandomPacked;
using ops::conformance::TestTensor;

TEST_P(GpuConformance, Linear) {
  ops::CheckLinearConformance(OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

TEST_P(GpuConformance, LinearWithScales) {
  ops::CheckScaledConformance(OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

TEST_P(GpuConformance, LinearWithPackedIntegers) {
  ops::CheckPackedConformance(OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

// A random matrix of weights in every format.
class WeightsOfEveryFormat {
 public:
  WeightsOfEveryFormat(int64_t rows, int64_t columns, Random& random) {
    std::vector<DType> dtypes(std::begin(ops::kWeightDTypes), std::end(ops::kWeightDTypes));
    dtypes.insert(dtypes.end(), {DType::kIQ4_NL, DType::kMxfp4});  // which are converted
    for (const DType dtype : dtypes) {
      if (columns % Info(dtype).block_elements == 0) {
        Add(std::string(Info(dtype).name), Values(dtype, rows, columns, 1, random));
      }
    }
    for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
      for (const ScaleBlock& block :
           {ScaleBlock{1, columns}, {rows, columns}, {128, 128}, {16, 64}, {5, 8}}) {
        AddScaled(dtype, rows, columns, block, random);
      }
    }
    for (const auto& kind : kPackedKinds) {
      packed_.emplace_back(kind, kNoStack, rows, columns, random);
      Add(NameOf(kind), packed_.back().view());
    }
  }

  const std::vector<std::pair<std::string, TensorView>>& all() const { return all_; }

 private:
  void Add(std::string name, const TensorView& view) { all_.emplace_back(std::move(name), view); }

  TensorView Values(DType dtype, int64_t rows, int64_t columns, float largest, Random& random) {
    tensors_.emplace_back(dtype, std::initializer_list<int64_t>{rows, columns});
    tensors_.back().FillUniform(random, -largest, largest);
    return tensors_.back().view();
  }

  void AddScaled(DType dtype, int64_t rows, int64_t columns, ScaleBlock block, Random& random) {
    scaled_.emplace_back(dtype, rows, columns, block, random);
    Add(std::string(Info(dtype).name) + " in blocks of " + std::to_string(block.rows) + " x " +
            std::to_string(block.columns),
        scaled_.back().view());
  }

  std::deque<TestTensor> tensors_;
  std::deque<RandomScaled> scaled_;
  std::deque<RandomPacked> packed_;
  std::vector<std::pair<std::string, TensorView>> all_;
};

// A small product in bf16.
AlignedProduct PlainProduct() {
  static const TestTensor w(DType::kBF16, {8, 32});
  return AlignedProduct(1, w.view(), DType::kF32);
}

// Of kernels of one name, the one for weights of this format: those of AWQ and of converted blocks
// pack them. The first if there is none, or no weight.
const ops::Kernel& KernelFor(const ops::OpDefinition& op, std::string_view name,
                             const TensorView& w) {
  const AlignedProduct product = w.rank == 0 ? PlainProduct() : AlignedProduct(1, w, DType::kF32);
  const ops::Kernel* const found = product.FindKernel(op, name);
  return found != nullptr ? *found : *std::ranges::find(op.kernels, name, &ops::Kernel::name);
}

// The kernel of bf16 products on this GPU.
const ops::Kernel& Bf16Kernel(const ops::OpDefinition& op, const TensorView& w = {}) {
  const bool is_of_amd = PlainProduct().FindKernel(op, "matrix_core") != nullptr;
  return KernelFor(op, is_of_amd ? "matrix_core" : "tensor_core", w);
}

TEST_P(GpuConformance, LinearHasInstructionsOfItsGpu) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  for (const ops::Kernel& kernel : op.kernels) {
    if (!kernel.name.ends_with("_core")) continue;
    EXPECT_EQ(PlainProduct().IsSupported(kernel), &kernel == &Bf16Kernel(op)) << kernel.name;
  }
}

TEST_P(GpuConformance, LinearOfScalesForFourColumnsIsOfOneKernel) {
  TestTensor values(DType::kI8, {8, 32}), scales(DType::kF32, {2, 8});
  const QuantizedParts parts = {.format = {.block_rows = 5, .block_columns = 4},
                                .values = values.view(),
                                .scales = scales.view(),
                                .zeros = {},
                                .groups = {}};
  TensorView w = values.view();
  w.parts = &parts;
  const AlignedProduct product(1, w, DType::kF32);
  for (const ops::Kernel& kernel : LinearKernels()) {
    const bool takes_stored = kernel.name == "gpu" && kernel.packing == nullptr;
    EXPECT_EQ(product.IsSupported(kernel), takes_stored) << kernel.name;
  }
}

TEST_P(GpuConformance, LinearOfBf16) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  Random random(1);
  // The last two have spans of chunks that begin or end within a split, and the last one words of AWQ
  // at multiples of 16 bytes.
  for (const auto& [m, k] :
       {std::pair<int64_t, int64_t>{8, 32}, {72, 96}, {136, 512}, {24, 768}, {64, 1312}}) {
    const WeightsOfEveryFormat weights(m, k, random);
    for (const auto& [name, w] : weights.all()) {
      SCOPED_TRACE(name + " " + std::to_string(m) + " x " + std::to_string(k));
      const ops::Kernel& kernel = Bf16Kernel(op, w);
      const int64_t most = 70;
      AlignedProduct product(most, w, DType::kF32);
      ASSERT_TRUE(product.IsSupported(kernel));
      const std::vector<float> all = product.Run(kernel, most);
      product.CheckValues(all);
      for (int64_t rows : {1, 9, 33}) {
        const std::vector<float> few = product.Run(kernel, rows);
        EXPECT_TRUE(BitEqual(few, std::span(all).first(few.size()))) << rows << " rows";
      }
    }
  }
}

// More matrices than share a launch, of heights that end within tiles, some with a bias.
TEST_P(GpuConformance, LinearOfBf16HasTheBitsOfSingleMatrices) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  constexpr int64_t kHeights[] = {40, 8, 72, 24, 136}, kColumns = 96, kRows = 9;
  Random random(4);
  std::deque<WeightsOfEveryFormat> weights;
  for (int64_t height : kHeights) weights.emplace_back(height, kColumns, random);
  TestTensor x(DType::kBF16, {kRows, kColumns});
  x.FillUniform(random, -2, 2);
  const ops::Attributes attributes;
  device::ThreadPool pool({.num_threads = 1});
  for (size_t format = 0; format < weights[0].all().size(); ++format) {
    SCOPED_TRACE(weights[0].all()[format].first);
    const ops::Kernel& kernel = Bf16Kernel(op, weights[0].all()[format].second);
    std::vector<TensorView> inputs = {x.view()}, outputs;
    std::deque<TestTensor> biases, results;
    for (size_t i = 0; i < weights.size(); ++i) {
      biases.emplace_back(DType::kF32, std::initializer_list<int64_t>{kHeights[i]});
      biases.back().FillUniform(random, -1, 1);
      results.emplace_back(DType::kBF16, std::initializer_list<int64_t>{kRows, kHeights[i]});
      inputs.push_back(weights[i].all()[format].second);
      inputs.push_back(i % 2 == 0 ? biases.back().view() : TensorView{});
      outputs.push_back(results.back().view());
    }
    const auto run = [&](std::span<const TensorView> in, std::span<const TensorView> out) {
      ops::conformance::RunKernel(
          kernel, {.inputs = in, .outputs = out, .attributes = &attributes}, pool);
    };
    run(inputs, outputs);
    std::vector<std::vector<uint8_t>> together;
    for (TestTensor& result : results) {
      together.push_back(result.Bytes());
      result.Poison();
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorView single[] = {x.view(), inputs[1 + 2 * i], inputs[2 + 2 * i]};
      run(single, std::span(outputs).subspan(i, 1));
      EXPECT_TRUE(results[i].Bytes() == together[i]) << "matrix " << i;
      EXPECT_TRUE(results[i].GuardsIntact()) << "matrix " << i;
    }
  }
}

TEST_P(GpuConformance, LinearOfBf16RoundsOnce) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  TestTensor w(DType::kBF16, {40, 64});
  Random random(2);
  w.FillUniform(random, -1, 1);
  AlignedProduct narrow(3, w.view(), DType::kBF16), wide(3, w.view(), DType::kF32);
  const std::vector<float> rounded = narrow.Run(Bf16Kernel(op), 3);
  TestTensor expected(DType::kBF16, {3, 40});
  expected.Set(wide.Run(Bf16Kernel(op), 3));
  EXPECT_TRUE(BitEqual(rounded, expected.ToFloat()));
}

TEST_P(GpuConformance, LinearOfMisalignedBlocks) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  Random random(5);
  TestTensor w(DType::kQ4_K, {24, 256}, {.misalign_bytes = 2});
  w.FillUniform(random, -1, 1);
  AlignedProduct product(9, w.view(), DType::kF32);
  const std::vector<float> got = product.Run(Bf16Kernel(op), 9);
  product.CheckValues(got);
  // Misaligned loads work in the emulation: the bits tell whose they are.
  const ops::Kernel& other = *std::ranges::find(op.kernels, "gpu", &ops::Kernel::name);
  EXPECT_TRUE(BitEqual(got, product.Run(other, 9)));
}

TEST_P(GpuConformance, LinearOfBlocksThatAreConverted) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  Random random(8);
  for (const DType dtype : {DType::kIQ4_NL, DType::kMxfp4}) {
    TestTensor w(dtype, {24, 96}), other(DType::kQ8_0, {24, 96});
    w.FillUniform(random, -1, 1);
    AlignedProduct product(9, w.view(), DType::kF32);
    size_t kernels = 0;
    for (const ops::Kernel& kernel : op.kernels) {
      if (kernel.packing == nullptr || !product.IsSupported(kernel)) continue;
      ++kernels;
      SCOPED_TRACE(std::string(Info(dtype).name) + " " + std::string(kernel.name));
      product.CheckValues(product.Run(kernel, 9));
      EXPECT_FALSE(AlignedProduct(9, other.view(), DType::kF32).IsSupported(kernel));
    }
    EXPECT_GE(kernels, 2u) << "in floats and in bf16";
  }
}

// Parts of matrices: the last has half a tile, and begins and ends within spans. Its bits are those of
// words as they are stored.
TEST_P(GpuConformance, LinearOfPartsOfAwq) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  struct Part {
    int64_t row, column, rows, columns;
  };
  Random random(6);
  for (const auto& kind : kPackedKinds) {
    if (kind.layout != QuantizedLayout::kAwq) continue;
    for (const Part& part : {Part{0, 0, 40, 256}, {32, 64, 64, 192}, {8, 32, 72, 160}}) {
      SCOPED_TRACE(NameOf(kind) + " from row " + std::to_string(part.row));
      RandomPacked w(kind, kNoStack, 96, 256, random);
      const TensorView view = w.PartFrom(part.row, part.column, part.rows, part.columns);
      const ops::Kernel& kernel = Bf16Kernel(op, view);
      AlignedProduct product(20, view, DType::kF32);
      ASSERT_TRUE(product.IsSupported(kernel));
      for (int64_t rows : {1, 9, 20}) {
        const std::vector<float> got = product.Run(kernel, rows);
        product.CheckValues(got);
        EXPECT_TRUE(BitEqual(got, product.Run(Bf16Kernel(op), rows))) << rows << " rows";
      }
    }
  }
}

// A kernel packs all matrices of a call, or none.
TEST_P(GpuConformance, LinearOfAwqPacksWholeWords) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  if (Bf16Kernel(op).name != "tensor_core") return;
  Random random(7);
  auto with_groups = kPackedKinds[0];
  with_groups.has_groups = true;
  RandomPacked first(kPackedKinds[0], kNoStack, 48, 64, random);
  RandomPacked second(kPackedKinds[0], kNoStack, 48, 64, random);
  RandomPacked third(with_groups, kNoStack, 48, 64, random);
  const TestTensor x(DType::kBF16, {3, 64}), y(DType::kBF16, {3, 40}), z(DType::kBF16, {3, 40});
  const ops::Attributes attributes;
  const auto packs = [&](const TensorView& a, const TensorView& b) {
    const TensorView inputs[] = {x.view(), a, {}, b, {}}, outputs[] = {y.view(), z.view()};
    const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    const ops::Kernel& packing = Bf16Kernel(op, first.view());
    EXPECT_NE(packing.supports(GpuCapabilities(), call),
              Bf16Kernel(op).supports(GpuCapabilities(), call));
    return packing.supports(GpuCapabilities(), call);
  };
  const TensorView whole = first.PartFrom(8, 0, 40, 64);
  EXPECT_TRUE(packs(whole, second.PartFrom(0, 0, 40, 64)));
  EXPECT_FALSE(packs(whole, second.PartFrom(4, 0, 40, 64)));
  EXPECT_FALSE(packs(whole, third.PartFrom(0, 0, 40, 64)));
}

TEST_P(GpuConformance, LinearByCublasLt) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  Random random(3);
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{72, 96}, {136, 512}}) {
    const WeightsOfEveryFormat weights(m, k, random);
    for (const auto& [name, w] : weights.all()) {
      SCOPED_TRACE(name + " " + std::to_string(m) + " x " + std::to_string(k));
      const ops::Kernel& kernel = KernelFor(op, "cublaslt", w);
      AlignedProduct wide(130, w, DType::kF32), narrow(130, w, DType::kBF16);
      if (!wide.IsSupported(kernel)) GTEST_SKIP() << "cuBLASLt is not installed";
      for (int64_t rows : {33, 130}) {
        SCOPED_TRACE(std::to_string(rows) + " rows");
        wide.CheckValues(wide.Run(kernel, rows));
        narrow.CheckValues(narrow.Run(kernel, rows));
      }
      narrow.LeaveOutBias();
      narrow.CheckValues(narrow.Run(kernel, 130));
    }
  }
}

TEST_P(GpuConformance, LinearByCublasLtInFp8) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  const ops::Kernel& kernel = *std::ranges::find(op.kernels, "cublaslt_fp8", &ops::Kernel::name);
  Random random(5);
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{72, 96}, {136, 512}, {136, 672}}) {
    for (const ScaleBlock& block : {ScaleBlock{1, k}, {m, k}, {128, 128}}) {
      SCOPED_TRACE("blocks of " + std::to_string(block.rows) + " x " +
                   std::to_string(block.columns) + " " + std::to_string(m) + " x " +
                   std::to_string(k));
      const RandomScaled w(DType::kF8E4M3, m, k, block, random);
      AlignedProduct wide(130, w.view(), DType::kF32), narrow(130, w.view(), DType::kBF16);
      if (!wide.IsSupported(kernel)) {
        GTEST_SKIP() << "cuBLASLt 12.9 is not installed, or has no scales for this GPU";
      }
      for (int64_t rows : {33, 130}) {
        SCOPED_TRACE(std::to_string(rows) + " rows");
        wide.CheckFp8Values(wide.Run(kernel, rows));
        narrow.CheckFp8Values(narrow.Run(kernel, rows));
      }
      narrow.LeaveOutBias();
      narrow.CheckFp8Values(narrow.Run(kernel, 130));
    }
  }
}

TEST_P(GpuConformance, LinearOnMatrixCoresInF8) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  Random random(9);
  // Fewer stages of K than warps, and more; outputs that end within tiles.
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{72, 128}, {200, 1280}}) {
    for (const ScaleBlock& block : {ScaleBlock{1, k}, {m, k}, {128, 128}, {16, 128}}) {
      SCOPED_TRACE("blocks of " + std::to_string(block.rows) + " x " +
                   std::to_string(block.columns) + " " + std::to_string(m) + " x " +
                   std::to_string(k));
      const RandomScaled w(DType::kF8E4M3, m, k, block, random);
      AlignedProduct wide(61, w.view(), DType::kF32), narrow(61, w.view(), DType::kBF16);
      const ops::Kernel* const kernel = wide.FindKernel(op, "matrix_core_f8");
      if (kernel == nullptr) GTEST_SKIP() << "this GPU has no such products";
      const std::vector<float> all = wide.Run(*kernel, 61);
      wide.CheckFp8Values(all);
      for (int64_t rows : {1, 16, 17}) {
        const std::vector<float> few = wide.Run(*kernel, rows);
        EXPECT_TRUE(BitEqual(few, std::span(all).first(few.size()))) << rows << " rows";
      }
      narrow.CheckFp8Values(narrow.Run(*kernel, 61));
      narrow.LeaveOutBias();
      narrow.CheckFp8Values(narrow.Run(*kernel, 3));
    }
  }
}

TEST_P(GpuConformance, LinearByWgmma) {
  const device::GpuCapabilities gpu = GpuCapabilities().gpu;
  if (gpu.compute_major != 9 || gpu.compute_minor != 0 || gpu.warp_lanes != 32) {
    GTEST_SKIP() << "this GPU has no products of warpgroups";
  }
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  Random random(6);
  // Tiles of one block, of several, and wide ones on GPUs of few multiprocessors.
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{72, 128}, {200, 1280}, {520, 256}}) {
    for (const ScaleBlock& block : {ScaleBlock{1, k}, {m, k}, {128, 128}}) {
      SCOPED_TRACE("blocks of " + std::to_string(block.rows) + " x " +
                   std::to_string(block.columns) + " " + std::to_string(m) + " x " +
                   std::to_string(k));
      const RandomScaled w(DType::kF8E4M3, m, k, block, random);
      AlignedProduct wide(64, w.view(), DType::kF32), narrow(64, w.view(), DType::kBF16);
      const ops::Kernel* const kernel = wide.FindKernel(op, "wgmma");
      ASSERT_NE(kernel, nullptr);
      for (int64_t rows : {1, 16, 61}) {
        SCOPED_TRACE(std::to_string(rows) + " rows");
        const std::vector<float> results = wide.Run(*kernel, rows);
        wide.CheckFp8Values(results);
        EXPECT_TRUE(BitEqual(results, wide.Run(*kernel, rows)));
        narrow.CheckFp8Values(narrow.Run(*kernel, rows));
      }
      narrow.LeaveOutBias();
      narrow.CheckFp8Values(narrow.Run(*kernel, 3));
    }
  }
  // As in large models: wide tiles on every GPU, and more steps for a block than it has stages.
  const RandomScaled w(DType::kF8E4M3, 128 * gpu.multiprocessors + 8, 4096, {128, 128}, random);
  AlignedProduct large(33, w.view(), DType::kBF16);
  const ops::Kernel* const kernel = large.FindKernel(op, "wgmma");
  ASSERT_NE(kernel, nullptr);
  for (int64_t rows : {9, 33}) large.CheckFp8Values(large.Run(*kernel, rows));
}

// By the kernel that takes more rows to the library: on Hopper, weights of few bits are decoded once
// for all of these.
TEST_P(GpuConformance, LinearOfSomeRows) {
  const device::GpuCapabilities gpu = GpuCapabilities().gpu;
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  if (PlainProduct().FindKernel(op, "cublaslt") == nullptr) GTEST_SKIP() << "no cuBLASLt";
  Random random(8);
  const auto check = [&](const std::string& name, const TensorView& w) {
    AlignedProduct wide(128, w, DType::kF32), narrow(128, w, DType::kBF16);
    const ops::Kernel* const kernel = wide.FindKernel(op, "cublaslt");
    ASSERT_NE(kernel, nullptr);
    for (int64_t rows : {17, 64, 100, 128}) {
      SCOPED_TRACE(name + ", " + std::to_string(rows) + " rows");
      wide.CheckValues(wide.Run(*kernel, rows));
    }
    narrow.CheckValues(narrow.Run(*kernel, 33));
  };
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{72, 128}, {200, 1280}}) {
    const WeightsOfEveryFormat weights(m, k, random);
    for (const auto& [name, w] : weights.all()) check(name, w);
  }
  // More steps for a block than it has stages, as in large models.
  const RandomPacked awq(kPackedKinds[0], kNoStack, 32 * gpu.multiprocessors + 8, 4096, random);
  const RandomPacked gptq(kPackedKinds[2], kNoStack, 32 * gpu.multiprocessors + 8, 4096, random);
  for (const RandomPacked* w : {&awq, &gptq}) {
    AlignedProduct large(70, w->view(), DType::kBF16);
    const ops::Kernel* const kernel = large.FindKernel(op, "cublaslt");
    ASSERT_NE(kernel, nullptr);
    for (int64_t rows : {40, 70}) large.CheckValues(large.Run(*kernel, rows));
  }
}

}  // namespace
}  // namespace pagemill::gpu
