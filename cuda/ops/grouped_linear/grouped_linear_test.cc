#include "cuda/ops/kernels.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/quantized/random_packed.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/linear/testing/rounded_to_f8.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::BitEqual;
using ops::conformance::Random;
using ops::conformance::RandomPacked;
using ops::conformance::TestTensor;

TEST_P(GpuConformance, GroupedLinear) {
  ops::CheckGroupedLinearConformance(OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp()),
                                     OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

// The kernel of products with this precision on this GPU, whose bits are those of `linear`; null:
// there is none.
const ops::Kernel* KernelOf(const ops::OpDefinition& op, const ops::OpCall& call,
                            ops::Precision precision) {
  for (const ops::Kernel& kernel : op.kernels) {
    if (kernel.activations == precision && !kernel.varies_with_batch &&
        kernel.supports(GpuCapabilities(), call)) {
      return &kernel;
    }
  }
  return nullptr;
}

// Each row has the bits of the kernel of `linear` with this precision. Rows of x are aligned, unlike
// those of the conformance body.
void CheckLikeLinear(ops::Precision precision, const TensorView& stack, int64_t tokens,
                     Random& random) {
  const ops::OpDefinition op = OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp());
  const ops::OpDefinition linear = OnGpu<LinearKernels>(ops::LinearOp());
  const int64_t choices = 2, experts = stack.shape[0], m = stack.shape[1], k = stack.shape[2];
  TestTensor x(DType::kBF16, {tokens, k}), ids(DType::kI32, {tokens, choices});
  TestTensor bias(DType::kF32, {experts, m}), y(DType::kBF16, {tokens, choices, m});
  x.FillUniform(random, -2, 2);
  bias.FillUniform(random, -1, 1);
  ids.FillUniform(random, 0, static_cast<float>(experts));  // one of none
  const TensorView inputs[] = {x.view(), ids.view(), stack, bias.view()}, outputs[] = {y.view()};
  const ops::Attributes attributes;
  const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  const ops::Kernel* const kernel = KernelOf(op, call, precision);
  if (kernel == nullptr) GTEST_SKIP() << "this GPU has no such products";
  device::ThreadPool pool({.num_threads = 1});
  y.Poison();
  ops::conformance::RunKernel(*kernel, call, pool);
  EXPECT_TRUE(y.GuardsIntact());
  const std::vector<float> got = y.ToFloat();
  std::vector<float> expected(got.size(), 0.0f);
  for (int64_t e = 0; e < experts; ++e) {
    const ops::MatrixOfStack w(stack, e);
    TestTensor rows(DType::kBF16, {tokens, m});
    const TensorView of_e[] = {x.view(), w.view(),
                               TensorView::Dense(bias.view().Row<void>(e), DType::kF32, {m})};
    const TensorView to[] = {rows.view()};
    const ops::OpCall of_rows = {.inputs = of_e, .outputs = to, .attributes = &attributes};
    const ops::Kernel* const of_linear = KernelOf(linear, of_rows, precision);
    ASSERT_NE(of_linear, nullptr);
    ops::conformance::RunKernel(*of_linear, of_rows, pool);
    const std::vector<float> values = rows.ToFloat();
    for (int64_t row = 0; row < tokens * choices; ++row) {
      if (ids.view().Data<int32_t>()[row] != e) continue;
      std::copy_n(values.begin() + row / choices * m, m, expected.begin() + row * m);
    }
  }
  EXPECT_TRUE(BitEqual(got, expected));
}

void CheckInBf16(const TensorView& stack, int64_t tokens, Random& random) {
  CheckLikeLinear(ops::Precision::kBf16, stack, tokens, random);
  ASSERT_FALSE(::testing::Test::IsSkipped());
}

// Elements of 8 bits with scales, and a bias.
struct ScaledStack {
  ScaledStack(DType dtype, int64_t experts, int64_t m, int64_t k, int64_t block_rows,
              int64_t block_columns, Random& random)
      : values(dtype, {experts, m, k}),
        scales(DType::kF32, {experts, DivideUp(m, block_rows), DivideUp(k, block_columns)}),
        bias(DType::kF32, {experts, m}) {
    values.FillUniform(random, -100, 100);
    scales.FillUniform(random, -0.01f, 0.01f);
    bias.FillUniform(random, -1, 1);
    parts = {.format = {.block_rows = block_rows, .block_columns = block_columns},
             .values = values.view(),
             .scales = scales.view(),
             .zeros = {},
             .groups = {}};
  }

  TensorView view() const {
    TensorView stack = values.view();
    stack.parts = &parts;
    return stack;
  }

  TestTensor values, scales, bias;
  QuantizedParts parts;
};

TEST_P(GpuConformance, GroupedLinearInBf16) {
  Random random(3);
  // Each row alone, groups of some rows, and groups of many.
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{5, 30}, {35, 3}, {70, 2}}) {
    TestTensor bf16(DType::kBF16, {experts, 72, 64}), q8_0(DType::kQ8_0, {experts, 72, 64});
    bf16.FillUniform(random, -1, 1);
    q8_0.FillUniform(random, -1, 1);
    SCOPED_TRACE(std::to_string(tokens) + " tokens");
    CheckInBf16(bf16.view(), tokens, random);
    CheckInBf16(q8_0.view(), tokens, random);
    for (const DType dtype : {DType::kIQ4_NL, DType::kMxfp4}) {
      SCOPED_TRACE(Info(dtype).name);
      TestTensor stack(dtype, {experts, 72, 64});
      stack.FillUniform(random, -1, 1);
      CheckInBf16(stack.view(), tokens, random);
    }
    for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
      for (const auto& [block_rows, block_columns] : {std::pair<int64_t, int64_t>{1, 64}, {16, 32}}) {
        SCOPED_TRACE(std::string(Info(dtype).name) + " in blocks of " +
                     std::to_string(block_columns));
        const ScaledStack stack(dtype, experts, 72, 64, block_rows, block_columns, random);
        CheckInBf16(stack.view(), tokens, random);
      }
    }
    for (const auto& kind : ops::conformance::kPackedKinds) {
      if (!kind.has_zeros && !ops::HasFp4({.layout = kind.layout})) continue;
      SCOPED_TRACE(NameOf(kind));
      CheckInBf16(RandomPacked(kind, experts, 72, 64, random).view(), tokens, random);
    }
  }
}

TEST_P(GpuConformance, GroupedLinearInF8HasTheBitsOfLinear) {
  Random random(9);
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{5, 30}, {35, 3}}) {
    const ScaledStack stack(DType::kF8E4M3, experts, 72, 384, 128, 128, random);
    CheckLikeLinear(ops::Precision::kF8, stack.view(), tokens, random);
  }
}

// Rows are sorted in several chunks, for more experts than a warp has lanes, which have groups of
// few rows, and for more chunks than are added up at once.
TEST_P(GpuConformance, GroupedLinearOfManyRows) {
  Random random(4);
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{130, 70}, {1200, 2}}) {
    SCOPED_TRACE(std::to_string(tokens) + " tokens");
    TestTensor stack(DType::kBF16, {experts, 8, 32});
    stack.FillUniform(random, -1, 1);
    CheckInBf16(stack.view(), tokens, random);
  }
}

// K has more stages than are under way, and half of one: in groups of some rows, many and most.
TEST_P(GpuConformance, GroupedLinearOfLongRows) {
  Random random(5);
  for (const DType dtype : {DType::kBF16, DType::kQ8_0}) {
    SCOPED_TRACE(std::string(Info(dtype).name));
    TestTensor stack(dtype, {3, 136, 352});
    stack.FillUniform(random, -1, 1);
    for (const int64_t tokens : {35, 70, 200}) CheckInBf16(stack.view(), tokens, random);
  }
}

struct Stacks {
  int64_t tokens, experts;
  std::vector<int64_t> heights;
  int64_t k;
  bool shared;  // do a token's choices share a row of x?
  bool bias;
};

constexpr int64_t kChoices = 2;

// Random rows and their experts, of which one is none.
struct Tokens {
  Tokens(const Stacks& c, Random& random)
      : x(DType::kBF16, {c.tokens, c.shared ? c.k : kChoices * c.k}),
        ids(DType::kI32, {c.tokens, kChoices}) {
    x.FillUniform(random, -2, 2);
    ids.FillUniform(random, 0, static_cast<float>(c.experts));
  }

  TestTensor x, ids;
};

// Each kernel for these operands has the results of the one with sums in f32 to the last bit or so:
// the only test of kernels that add up in an order of their own.
void CheckSums(const Stacks& c, Random& random) {
  const ops::OpDefinition op = OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp());
  const Tokens tokens(c, random);
  std::vector<TestTensor> tensors;
  std::vector<TensorView> inputs = {tokens.x.view(), tokens.ids.view()}, outputs;
  tensors.reserve(3 * c.heights.size());
  for (const int64_t m : c.heights) {
    TestTensor& stack = tensors.emplace_back(DType::kBF16, std::vector{c.experts, m, c.k});
    TestTensor& bias = tensors.emplace_back(DType::kF32, std::vector{c.experts, m});
    stack.FillUniform(random, -1, 1);
    bias.FillUniform(random, -1, 1);
    inputs.insert(inputs.end(), {stack.view(), c.bias ? bias.view() : TensorView{}});
    outputs.push_back(
        tensors.emplace_back(DType::kBF16, std::vector{c.tokens, kChoices, m}).view());
  }
  const ops::Attributes attributes;
  const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  device::ThreadPool pool({.num_threads = 1});
  const auto results_of = [&](const ops::Kernel& kernel) {
    std::vector<float> all;
    for (size_t i = 2; i < tensors.size(); i += 3) tensors[i].Poison();
    ops::conformance::RunKernel(kernel, call, pool);
    for (size_t i = 2; i < tensors.size(); i += 3) {
      EXPECT_TRUE(tensors[i].GuardsIntact());
      const std::vector<float> values = tensors[i].ToFloat();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const std::vector<float> expected =
      results_of(*std::ranges::find(op.kernels, "gpu", &ops::Kernel::name));
  for (const ops::Kernel* kernel :
       ops::conformance::SupportedKernels(op, GpuCapabilities(), call)) {
    SCOPED_TRACE(std::string(kernel->name));
    const std::vector<float> got = results_of(*kernel);
    for (size_t i = 0; i < got.size(); ++i) {
      // bf16 has eight bits, and the sums of f32 before that differ by less than the constant.
      ASSERT_NEAR(got[i], expected[i], std::abs(expected[i]) / 128 + 1e-3f) << "result " << i;
    }
  }
}

// Rows are alone, experts have fewer rows than the smallest instruction and more than a group, K
// has one stage and more than are under way, outputs are less than those of a tile and a few more.
TEST_P(GpuConformance, GroupedLinearHasTheSumsOfTheReference) {
  Random random(6);
  for (const Stacks& stacks : {Stacks{20, 90, {136}, 896, false, true},
                               {40, 3, {264, 8}, 64, true, true},
                               {40, 90, {72}, 128, false, false},
                               {70, 2, {40}, 448, true, false},
                               {150, 3, {264}, 320, false, true},
                               {330, 2, {16, 16}, 128, true, false}}) {
    SCOPED_TRACE(std::to_string(stacks.tokens) + " tokens, K " + std::to_string(stacks.k));
    CheckSums(stacks, random);
  }
}

// Results in bf16 are exact products of rows of x as kernels of fp8 round them, except for what
// tensor cores lose of sums (linear.h), and one rounding.
void CheckF8Sums(const Stacks& c, int64_t block_rows, int64_t block_columns, Random& random) {
  const ops::OpDefinition op = OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp());
  const Tokens tokens(c, random);
  std::deque<ScaledStack> stacks;
  std::deque<TestTensor> results;
  std::vector<TensorView> inputs = {tokens.x.view(), tokens.ids.view()}, outputs;
  for (const int64_t m : c.heights) {
    stacks.emplace_back(DType::kF8E4M3, c.experts, m, c.k, block_rows, block_columns, random);
    inputs.insert(inputs.end(),
                  {stacks.back().view(), c.bias ? stacks.back().bias.view() : TensorView{}});
    outputs.push_back(
        results.emplace_back(DType::kBF16, std::vector{c.tokens, kChoices, m}).view());
    results.back().Poison();
  }
  const ops::Attributes attributes;
  const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  const auto kernel = std::ranges::find_if(op.kernels, [&](const ops::Kernel& each) {
    return each.activations == ops::Precision::kF8 && each.supports(GpuCapabilities(), call);
  });
  if (kernel == op.kernels.end()) {
    const device::GpuCapabilities gpu = GpuCapabilities().gpu;
    ASSERT_FALSE(gpu.compute_major == 9 && gpu.compute_minor == 0 && gpu.warp_lanes == 32);
    GTEST_SKIP() << "this GPU has no products of experts in fp8";
  }
  device::ThreadPool pool({.num_threads = 1});
  ops::conformance::RunKernel(*kernel, call, pool);
  const std::vector<float> of_x = RoundedToF8(tokens.x.ToFloat(), c.k, /*block=*/128);
  double squares = 0, numbers = 0;
  for (size_t i = 0; i < stacks.size(); ++i) {
    EXPECT_TRUE(results[i].GuardsIntact());
    const std::vector<float> got = results[i].ToFloat(), of_bias = stacks[i].bias.ToFloat();
    const int64_t m = c.heights[i];
    std::vector<float> w(static_cast<size_t>(m * c.k));
    for (int64_t e = 0; e <= c.experts; ++e) {
      for (int64_t output = 0; e < c.experts && output < m; ++output) {
        ops::ReadWeightRow(stacks[i].view(), e, output, &w[static_cast<size_t>(output * c.k)]);
      }
      for (int64_t row = 0; row < c.tokens * kChoices; ++row) {
        if (tokens.ids.view().Data<int32_t>()[row] != e) continue;
        const int64_t of_row = (c.shared ? row / kChoices : row) * c.k;
        for (int64_t output = 0; output < m; ++output) {
          const float y = got[static_cast<size_t>(row * m + output)];
          if (e == c.experts) {
            ASSERT_EQ(y, 0) << "row " << row << " of no expert";
            continue;
          }
          double sum = c.bias ? of_bias[static_cast<size_t>(e * m + output)] : 0;
          double magnitude = std::abs(sum), of_squares = sum * sum;
          for (int64_t k = 0; k < c.k; ++k) {
            const double term = double{w[static_cast<size_t>(output * c.k + k)]} *
                                of_x[static_cast<size_t>(of_row + k)];
            sum += term;
            magnitude += std::abs(term);
            of_squares += term * term;
          }
          ASSERT_NEAR(y, sum, 0x1p-5 * magnitude + 0x1p-8 * std::abs(sum))
              << "row " << row << ", output " << output << " of stack " << i;
          squares += (y - sum) * (y - sum) / of_squares;
          ++numbers;
        }
      }
    }
  }
  EXPECT_LE(std::sqrt(squares / numbers), 0x1p-7);
}

TEST_P(GpuConformance, GroupedLinearInF8) {
  Random random(8);
  // As in bf16: rows alone, experts with fewer rows than the smallest instruction, and with more
  // than a group, K with more stages than are under way.
  for (const Stacks& stacks : {Stacks{20, 90, {136}, 896, false, true},
                               {40, 3, {264, 8}, 128, true, true},
                               {40, 90, {72}, 256, false, false},
                               {70, 2, {40}, 384, true, false},
                               {36, 2, {40}, 2048, true, false},
                               {150, 3, {264}, 256, false, true}}) {
    for (const auto& [block_rows, block_columns] :
         {std::pair<int64_t, int64_t>{1, stacks.k}, {128, 128}}) {
      SCOPED_TRACE(std::to_string(stacks.tokens) + " tokens, K " + std::to_string(stacks.k) +
                   ", blocks of " + std::to_string(block_rows));
      CheckF8Sums(stacks, block_rows, block_columns, random);
    }
  }
}

// Of tokens alone, and among many others.
TEST_P(GpuConformance, GroupedLinearOfARowIsTheSameAmongOthers) {
  const ops::OpDefinition op = OnGpu<GroupedLinearKernels>(ops::GroupedLinearOp());
  constexpr int64_t kTokens = 350, kAlone = 3;
  constexpr int64_t kExperts = 12, kOutputs = 24, kSize = 192;
  Random random(7);
  TestTensor x(DType::kBF16, {kTokens, kSize}), ids(DType::kI32, {kTokens, kChoices});
  TestTensor stack(DType::kBF16, {kExperts, kOutputs, kSize});
  TestTensor y(DType::kBF16, {kTokens, kChoices, kOutputs});
  x.FillUniform(random, -2, 2);
  ids.FillUniform(random, 0, kExperts - 1);
  stack.FillUniform(random, -1, 1);
  const ops::Attributes attributes;
  device::ThreadPool pool({.num_threads = 1});
  const auto results_of = [&](const ops::Kernel& kernel, int64_t tokens) {
    const auto first = [tokens](TensorView view) {
      view.shape[0] = tokens;
      return view;
    };
    const TensorView inputs[] = {first(x.view()), first(ids.view()), stack.view(), {}};
    const TensorView outputs[] = {first(y.view())};
    y.Poison();
    ops::conformance::RunKernel(
        kernel, {.inputs = inputs, .outputs = outputs, .attributes = &attributes}, pool);
    std::vector<float> results = y.ToFloat();
    results.resize(kAlone * kChoices * kOutputs);
    return results;
  };
  const TensorView inputs[] = {x.view(), ids.view(), stack.view(), {}}, outputs[] = {y.view()};
  const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  for (const ops::Kernel* kernel :
       ops::conformance::SupportedKernels(op, GpuCapabilities(), call)) {
    SCOPED_TRACE(std::string(kernel->name));
    EXPECT_TRUE(BitEqual(results_of(*kernel, kAlone), results_of(*kernel, kTokens)));
  }
}

}  // namespace
}  // namespace pagemill::gpu
