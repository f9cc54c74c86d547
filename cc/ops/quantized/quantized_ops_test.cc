// Ops on weights that are converted: every kernel gives the same bits as for the converted rows;
// the reference reads what is stored.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/embedding/embedding.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/head_linear/head_linear.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/quantized/random_packed.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops {
namespace {

using conformance::BitEqual;
using conformance::Random;
using conformance::RunKernel;
using conformance::SupportedKernels;
using conformance::TestTensor;

constexpr int64_t kColumns = 96;

// Matrices [count, rows, kColumns] in groups of 32, as GPTQ stores them; random.
struct Weights {
  Weights(int64_t count, int64_t rows, bool has_zeros, Random& random)
      : values(static_cast<size_t>(count * kColumns / 8 * rows)),
        zeros(static_cast<size_t>(count * 3 * rows / 8)),
        scales(static_cast<size_t>(count * 3 * rows)) {
    const auto word = [&] {
      return static_cast<uint32_t>(random.Int(0, 65535)) << 16 |
             static_cast<uint32_t>(random.Int(0, 65535));
    };
    for (uint32_t& w : values) w = word();
    for (uint32_t& w : zeros) w = word();
    for (uint16_t& s : scales) s = FloatToF16(random.Uniform(0.001f, 0.01f));
    parts = {.format = {.layout = QuantizedLayout::kGptq, .block_columns = 32},
             .values = Stack(values.data(), DType::kI32, count, kColumns / 8, rows),
             .scales = Stack(scales.data(), DType::kF16, count, 3, rows),
             .zeros = {},
             .groups = {}};
    if (has_zeros) parts.zeros = Stack(zeros.data(), DType::kI32, count, 3, rows / 8);
    view = Stack(values.data(), DType::kU4, count, rows, kColumns);
    view.parts = &parts;
  }
  Weights(const Weights&) = delete;

  // [rows, columns], or a stack of them if there are several.
  static TensorView Stack(void* data, DType dtype, int64_t count, int64_t rows, int64_t columns) {
    return count == 1 ? TensorView::Dense(data, dtype, {rows, columns})
                      : TensorView::Dense(data, dtype, {count, rows, columns});
  }

  std::vector<uint32_t> values, zeros;
  std::vector<uint16_t> scales;
  QuantizedParts parts;
  TensorView view;
};

// The largest error of minima of q4_1: d / 128, d <= 0.01, for |x| <= 1 in each column.
constexpr double kMinimaError = kColumns * 0.01 / 128;

// `weight` is among the inputs of the call; `tolerance` bounds what its conversion changes in y.
void CheckKernels(const OpDefinition& op, std::vector<TensorView> inputs, size_t weight,
                  TestTensor& y, const Attributes& attributes, double tolerance = kMinimaError) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 2});
  const TensorView outputs[] = {y.view()};
  const TensorView quantized = inputs[weight];
  std::vector<std::byte> rows(static_cast<size_t>(BlockRowsBytes(quantized)));
  ASSERT_TRUE(PackBlockRows(quantized, rows.data(), pool).ok());
  std::vector<TensorView> of_blocks = inputs;
  of_blocks[weight] = AsBlocks(quantized);
  of_blocks[weight].data = rows.data();
  const OpCall call{inputs, outputs, &attributes, nullptr};
  const OpCall blocks{of_blocks, outputs, &attributes, nullptr};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  const Kernel& reference = conformance::ReferenceKernel(op);
  RunKernel(reference, blocks, pool);
  const std::vector<float> rounded = y.ToFloat();
  size_t kernels = 0;
  for (const Kernel* kernel : SupportedKernels(op, caps, call)) {
    SCOPED_TRACE(std::string(op.op) + " " + std::string(kernel->name));
    y.Poison();
    RunKernel(*kernel, call, pool);
    EXPECT_TRUE(y.GuardsIntact());
    const std::vector<float> got = y.ToFloat();
    if (kernel == &reference) {
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], rounded[i], tolerance) << i;
      continue;
    }
    ++kernels;
    for (const Kernel* same : SupportedKernels(op, caps, blocks)) {
      if (same->name != kernel->name) continue;
      RunKernel(*same, blocks, pool);
      EXPECT_TRUE(BitEqual(got, y.ToFloat()));
    }
  }
  EXPECT_GE(kernels, 1u) << "besides the reference";
}

TEST(QuantizedOps, LinearIsThatOfBlocks) {
  Random random(1);
  for (bool has_zeros : {false, true}) {
    for (int64_t n : {1, 5, 40}) {
      const Weights w(1, 136, has_zeros, random);
      TestTensor x(DType::kF32, {n, kColumns}), y(DType::kF32, {n, 136});
      x.FillUniform(random, -1, 1);
      CheckKernels(LinearOp(), {x.view(), w.view}, 1, y, {});
    }
  }
}

// A stack of random blocks of a format that is converted, in rows of 512 elements. f16 scales are
// small: their high bytes are those of 2^-10 to 2^-7.
struct Blocks {
  static constexpr int64_t kElements = 512;

  Blocks(DType dtype, int64_t count, int64_t rows, Random& random) {
    const DTypeInfo& info = Info(dtype);
    bytes.resize(static_cast<size_t>(count * rows * RowBytes(dtype, kElements)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Int(0, 255));
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
      if (dtype == DType::kMxfp4) {
        bytes[at] = static_cast<uint8_t>(random.Int(115, 122));
      } else {
        for (int64_t scale : ScalesOf(dtype)) {
          bytes[at + static_cast<size_t>(scale) + 1] = static_cast<uint8_t>(random.Int(0x14, 0x1f));
        }
      }
    }
    view = Weights::Stack(bytes.data(), dtype, count, rows, kElements);
  }
  // Offsets of the f16 scales.
  static std::vector<int64_t> ScalesOf(DType dtype) {
    const int64_t size = Info(dtype).block_bytes;
    if (dtype == DType::kQ5_1) return {0, 2};
    if (dtype == DType::kQ2_K) return {size - 4, size - 2};
    const bool is_last = dtype == DType::kQ3_K || dtype == DType::kTQ1_0 ||
                         dtype == DType::kTQ2_0 || dtype == DType::kIQ1_M;
    return {is_last ? size - 2 : 0};
  }

  std::vector<uint8_t> bytes;
  TensorView view;
};

constexpr DType kConverted[] = {
    DType::kQ5_1,  DType::kQ2_K,    DType::kQ3_K,   DType::kIQ4_NL, DType::kIQ4_XS,
    DType::kMxfp4, DType::kTQ1_0,   DType::kTQ2_0,  DType::kIQ1_S,  DType::kIQ1_M,
    DType::kIQ2_S, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ3_S,  DType::kIQ3_XXS};

// The largest error of a value after conversion (converted_blocks.h), for d up to 0.008.
double ValueError(DType dtype) {
  switch (dtype) {
    case DType::kQ5_1:
      return 0.008 * 32 / 253;
    case DType::kQ2_K:
      return 0.008 * 15 * 4 / 55;
    case DType::kIQ4_XS:
      return 0.008 * 32 * 127 * 0x1p-12;
    case DType::kIQ1_S:
      return 0.008 / 8 * 15 * 0.18;
    case DType::kIQ2_XXS:
      return 0.008 / 8 * 31 * 0.7;
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return 0.008 / 8 * 31 * 0.35;
    case DType::kIQ3_XXS:
      return 0.008 / 4 * 31 * 1.4;
    case DType::kIQ3_S:
      return 0.008 * 31 * 15 * 0x1p-11;
    default:
      return 1e-5;  // exact; sums are rounded
  }
}

// The largest error of a sum of 512 products with x in -1..1: errors are independent, and 6 standard
// deviations never happen.
double BlocksError(DType dtype) { return 6 * std::sqrt(512.0) * ValueError(dtype); }

TEST(QuantizedOps, OpsOnBlocksThatAreConverted) {
  Random random(7);
  for (DType dtype : kConverted) {
    SCOPED_TRACE(Info(dtype).name);
    const Blocks w(dtype, 1, 37, random), stack(dtype, 3, 20, random);
    for (int64_t n : {1, 40}) {
      TestTensor x(DType::kF32, {n, Blocks::kElements}), y(DType::kF32, {n, 37});
      x.FillUniform(random, -1, 1);
      CheckKernels(LinearOp(), {x.view(), w.view}, 1, y, {}, BlocksError(dtype));
    }
    TestTensor x(DType::kF32, {5, Blocks::kElements});
    x.FillUniform(random, -1, 1);
    TestTensor ids(DType::kI32, {5, 2}), grouped(DType::kF32, {5, 2, 20});
    ids.SetInt(std::vector<int32_t>{0, 1, 2, 0, 1, 1, 2, 2, 7, 0});
    CheckKernels(GroupedLinearOp(), {x.view(), ids.view(), stack.view, {}}, 2, grouped, {},
                 BlocksError(dtype));
  }
}

// A table that no product shares is read as it is stored.
TEST(QuantizedOps, EmbeddingReadsBlocksThatAreConverted) {
  Random random(8);
  for (DType dtype : kConverted) {
    const Blocks w(dtype, 1, 9, random);
    TestTensor ids(DType::kI32, {3}), y(DType::kF32, {3, Blocks::kElements});
    ids.SetInt(std::vector<int32_t>{8, 0, 3});
    const TensorView inputs[] = {ids.view(), w.view}, outputs[] = {y.view()};
    const Attributes attributes;
    const OpCall call{inputs, outputs, &attributes, nullptr};
    device::ThreadPool pool({.num_threads = 2});
    RunKernel(conformance::ReferenceKernel(EmbeddingOp()), call, pool);
    const std::vector<float> expected = y.ToFloat();
    for (const Kernel* kernel :
         SupportedKernels(EmbeddingOp(), device::DetectCapabilities(), call)) {
      if (kernel->packing != nullptr) continue;
      y.Poison();
      RunKernel(*kernel, call, pool);
      EXPECT_TRUE(BitEqual(y.ToFloat(), expected)) << Info(dtype).name << kernel->name;
    }
  }
}

TEST(QuantizedOps, LinearConforms) {
  CheckPackedConformance(LinearOp(), device::DetectCapabilities());
}

// y = x w^T by a kernel that rounds x in blocks of 32 is within its bound of the exact product; f16
// rounds scales of nvfp4.
void ExpectWithinBound(const TestTensor& x, const TensorView& w, const Kernel& kernel,
                       const std::vector<float>& y) {
  const std::vector<float> of_x = x.ToFloat();
  const int64_t n = x.view().shape[0], m = w.shape[0], k = w.shape[1];
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t i = 0; i < m; ++i) {
    ReadWeightRow(w, 0, i, row.data());
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, bound = 0;
      for (int64_t c = 0; c < k; ++c) {
        const double weight = row[static_cast<size_t>(c)];
        sum += weight * of_x[static_cast<size_t>(j * k + c)];
        // Of x in -1..1.
        bound += std::abs(weight) * (LinearHalfStep(kernel) + 0x1p-11 + LinearErrorBound(k));
      }
      ASSERT_NEAR(y[static_cast<size_t>(j * m + i)], sum, bound) << j << ", " << i;
    }
  }
}

TEST(QuantizedOps, IntegerKernelsMultiplyFloatsOf4Bits) {
  Random random(9);
  for (const conformance::PackedKind& kind : conformance::kPackedKinds) {
    if (!HasFp4({.layout = kind.layout})) continue;
    SCOPED_TRACE(NameOf(kind));
    const conformance::RandomPacked w(kind, conformance::kNoStack, /*rows=*/72, /*columns=*/352,
                                      random);
    for (int64_t n : {1, 3, 40}) {
      TestTensor x(DType::kF32, {n, 352}), y(DType::kF32, {n, 72});
      x.FillUniform(random, -1, 1);
      const TensorView inputs[] = {x.view(), w.view()}, outputs[] = {y.view()};
      const Attributes attributes;
      const OpCall call{inputs, outputs, &attributes, nullptr};
      device::ThreadPool pool({.num_threads = 2});
      for (const Kernel* kernel :
           SupportedKernels(LinearOp(), device::DetectCapabilities(), call)) {
        if (kernel->activations == Precision::kF32) continue;
        SCOPED_TRACE(std::string(kernel->name));
        y.Poison();
        RunKernel(*kernel, call, pool);
        ExpectWithinBound(x, w.view(), *kernel, y.ToFloat());
      }
    }
  }
}

// Each expert of NVFP4 has a factor of its own.
TEST(QuantizedOps, ExpertsInFloatsOf4BitsAreMatrices) {
  Random random(10);
  for (const conformance::PackedKind& kind : conformance::kPackedKinds) {
    if (!HasFp4({.layout = kind.layout})) continue;
    SCOPED_TRACE(NameOf(kind));
    const conformance::RandomPacked stack(kind, /*matrices=*/3, /*rows=*/40, kColumns, random);
    TestTensor x(DType::kF32, {1, kColumns}), ids(DType::kI32, {1, 1}), y(DType::kF32, {1, 1, 40}),
        of_matrix(DType::kF32, {1, 40});
    x.FillUniform(random, -1, 1);
    const TensorView inputs[] = {x.view(), ids.view(), stack.view(), {}}, outputs[] = {y.view()};
    const Attributes attributes;
    const OpCall call{inputs, outputs, &attributes, nullptr};
    const device::Capabilities caps = device::DetectCapabilities();
    device::ThreadPool pool({.num_threads = 2});
    for (int32_t expert = 0; expert < 3; ++expert) {
      ids.SetInt(std::vector<int32_t>{expert});
      const MatrixOfStack matrix(stack.view(), expert);
      const TensorView of_linear[] = {x.view(), matrix.view()}, to[] = {of_matrix.view()};
      const OpCall linear{of_linear, to, &attributes, nullptr};
      for (const Kernel* kernel : SupportedKernels(GroupedLinearOp(), caps, call)) {
        RunKernel(*kernel, call, pool);
        for (const Kernel* same : SupportedKernels(LinearOp(), caps, linear)) {
          if (same->name != kernel->name) continue;
          RunKernel(*same, linear, pool);
          EXPECT_TRUE(BitEqual(y.ToFloat(), of_matrix.ToFloat())) << kernel->name;
        }
      }
    }
  }
}

TEST(QuantizedOps, LinearTakesRowsAndColumnsOfAMatrix) {
  Random random(2);
  Weights w(1, 136, true, random);
  w.parts.format.first_row = 3, w.parts.format.first_column = 32;
  w.view = TensorView::Dense(w.values.data(), DType::kU4, {130, 64});
  w.view.parts = &w.parts;
  TestTensor x(DType::kF32, {3, 64}), y(DType::kF32, {3, 130});
  x.FillUniform(random, -1, 1);
  CheckKernels(LinearOp(), {x.view(), w.view}, 1, y, {});
}

TEST(QuantizedOps, GroupedLinearIsThatOfBlocks) {
  Random random(3);
  const Weights w(3, 40, true, random);
  TestTensor x(DType::kF32, {5, kColumns}), ids(DType::kI32, {5, 2}), y(DType::kF32, {5, 2, 40});
  x.FillUniform(random, -1, 1);
  ids.SetInt(std::vector<int32_t>{0, 1, 2, 0, 1, 1, 2, 2, 7, 0});
  CheckKernels(GroupedLinearOp(), {x.view(), ids.view(), w.view, {}}, 2, y, {});
}

TEST(QuantizedOps, HeadLinearTakesRowsOfOneMatrix) {
  Random random(4);
  for (bool transposed : {false, true}) {
    Weights w(1, 48, true, random);
    w.parts.format.row_step = 16, w.parts.format.first_row = 5;
    w.view = TensorView::Dense(w.values.data(), DType::kU4, {3, 11, kColumns});
    w.view.parts = &w.parts;
    const int64_t in = transposed ? 11 : kColumns, out = transposed ? kColumns : 11;
    TestTensor x(DType::kF32, {4, 3, in}), y(DType::kF32, {4, 3, out});
    x.FillUniform(random, -1, 1);
    Attributes attributes;
    if (transposed) attributes.Set("transposed", 1);
    CheckKernels(HeadLinearOp(), {x.view(), w.view}, 1, y, attributes);
  }
}

TEST(QuantizedOps, EmbeddingIsThatOfBlocks) {
  Random random(5);
  const Weights w(1, 48, true, random);
  TestTensor ids(DType::kI32, {4}), y(DType::kF32, {4, kColumns});
  ids.SetInt(std::vector<int32_t>{0, 47, 13, 13});
  CheckKernels(EmbeddingOp(), {ids.view(), w.view}, 1, y, {});
}

TEST(QuantizedOps, OnlyProductsTakeScales) {
  Random random(6);
  TestTensor values(DType::kI8, {8, kColumns}), scales(DType::kF32, {8, 1});
  const QuantizedParts parts = {.format = {.block_columns = kColumns},
                                .values = values.view(),
                                .scales = scales.view(),
                                .zeros = {},
                                .groups = {}};
  TensorView weight = values.view();
  weight.parts = &parts;
  TestTensor ids(DType::kI32, {4}), y(DType::kF32, {4, kColumns});
  const TensorView inputs[] = {ids.view(), weight};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  EXPECT_EQ(EmbeddingOp().check({inputs, outputs, &attributes, nullptr}).message(),
            "embedding: W must not have scales");
}

}  // namespace
}  // namespace pagemill::ops
