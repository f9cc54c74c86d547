// What every kernel of `grouped_linear` has to pass. Each row of each output has the bits of the
// kernel of `linear` of the same name for this row and its expert's matrix (values are checked by
// the conformance of `linear`): for all weight dtypes and layouts of packed integers, one stack and
// two, with and without bias, x shared by a token's choices or not, misaligned and padded operands,
// 1 and 3 threads, experts without rows, all rows on one expert, ids of no expert, no tokens.
// Exactly the outputs are written.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/quantized/random_packed.h"
#include "cc/tensor/quantized.h"

namespace pagemill::ops {
namespace {

using conformance::BitEqual;
using conformance::PackedKind;
using conformance::Random;
using conformance::RandomPacked;
using conformance::RunKernel;
using conformance::TestTensor;
using device::ThreadPool;

enum class Routing { kRandom, kOneExpert, kSomeOfNone, kOfARank, kNone };

struct Case {
  int64_t tokens;
  int64_t choices;
  int64_t experts;
  std::vector<int64_t> heights;  // of each stack's matrices
  int64_t k;
  bool shared;  // do a token's choices share a row of x?
  bool bias = false;
  Routing routing = Routing::kRandom;
  int64_t misalign_bytes = 0;
  int64_t row_padding_bytes = 0;  // of x, ids and y
};

// Of weights: a dtype, with scales if it has 8 bits, or packed integers.
struct Format {
  DType dtype;
  const PackedKind* packed = nullptr;

  std::string Name() const { return packed ? NameOf(*packed) : std::string(Info(dtype).name); }
};

std::vector<Format> EveryFormat() {
  std::vector<Format> formats = {{DType::kI8}, {DType::kF8E4M3}};
  for (DType dtype : kWeightDTypes) formats.push_back({dtype});
  for (const PackedKind& kind : conformance::kPackedKinds) formats.push_back({kind.dtype, &kind});
  return formats;
}

// The operands of one call, random except for the outputs.
struct Operation {
  Operation(const Case& c, const Format& format, Random& random)
      : x(DType::kF32, {c.tokens, c.shared ? c.k : c.choices * c.k},
          {c.misalign_bytes, c.row_padding_bytes}),
        ids(DType::kI32, {c.tokens, c.choices}, {c.misalign_bytes, c.row_padding_bytes}) {
    x.FillUniform(random, -3, 3);
    FillIds(c, random);
    inputs = {x.view(), ids.view()};
    for (const int64_t m : c.heights) {
      const TensorView weight = format.packed != nullptr
                                    ? AddPacked(c, *format.packed, m, random)
                                    : AddStored(c, format.dtype, m, random);
      bias.push_back(TestTensor(DType::kF32, {c.experts, m}, {c.misalign_bytes, 0}));
      bias.back().FillUniform(random, -1, 1);
      y.push_back(TestTensor(DType::kF32, {c.tokens, c.choices, m},
                             {c.misalign_bytes, c.row_padding_bytes}));
      inputs.push_back(weight);
      inputs.push_back(c.bias ? bias.back().view() : TensorView{});
      outputs.push_back(y.back().view());
    }
    call = {inputs, outputs, &attributes, nullptr};
  }
  Operation(const Operation&) = delete;

  TensorView AddStored(const Case& c, DType dtype, int64_t m, Random& random) {
    const int64_t off = IsBlockFormat(dtype) ? c.misalign_bytes / 2 : c.misalign_bytes;
    w.push_back(TestTensor(dtype, {c.experts, m, c.k}, {off, 0}));
    const bool is_scaled = dtype == DType::kI8 || dtype == DType::kF8E4M3;
    w.back().FillUniform(random, is_scaled ? -100.f : -1.f, is_scaled ? 100.f : 1.f);
    TensorView weight = w.back().view();
    if (is_scaled) weight.parts = &AddScales(c, m, random);
    return weight;
  }

  // Words hold rows of a multiple of 8.
  TensorView AddPacked(const Case& c, const PackedKind& kind, int64_t m, Random& random) {
    packed.emplace_back(kind, c.experts, (m + 7) / 8 * 8, c.k, random);
    return packed.back().PartFrom(0, 0, m, c.k);
  }

  // Adds scales of the values that were added last: one per row, or per block of 16 x 32.
  const QuantizedParts& AddScales(const Case& c, int64_t m, Random& random) {
    const int64_t block_rows = c.bias ? 16 : 1, block_columns = c.bias ? 32 : c.k;
    scales.push_back(TestTensor(DType::kF32, {c.experts, (m + block_rows - 1) / block_rows,
                                              (c.k + block_columns - 1) / block_columns}));
    scales.back().FillUniform(random, 0.001f, 0.01f);
    return parts.emplace_back(
        QuantizedParts{.format = {.block_rows = block_rows, .block_columns = block_columns},
                       .values = w.back().view(),
                       .scales = scales.back().view(),
                       .zeros = {},
                       .groups = {}});
  }

  void FillIds(const Case& c, Random& random) {
    for (int64_t i = 0; i < c.tokens * c.choices; ++i) {
      int64_t id = random.Int(0, c.experts - 1);
      if (c.routing == Routing::kOneExpert) id = c.experts - 1;
      // Ids outside of the range: -1 and the number of experts.
      if (c.routing == Routing::kSomeOfNone && i % 3 == 0) id = i % 2 == 0 ? c.experts : -1;
      // Most experts belong to ranks before and after this one.
      if (c.routing == Routing::kOfARank) id = random.Int(-2 * c.experts, 3 * c.experts);
      if (c.routing == Routing::kNone) id = -7;
      expert_of.push_back(static_cast<int32_t>(id));
    }
    ids.SetInt(expert_of);
  }

  // Every row of x: [tokens * choices, k].
  std::vector<float> AllRows(const Case& c) const {
    const std::vector<float> stored = x.ToFloat();
    std::vector<float> values;
    for (int64_t row = 0; row < c.tokens * c.choices; ++row) {
      const auto from = stored.begin() + (c.shared ? row / c.choices : row) * c.k;
      values.insert(values.end(), from, from + c.k);
    }
    return values;
  }

  TestTensor x, ids;
  std::vector<int32_t> expert_of;
  std::vector<TestTensor> w, scales, bias, y;
  std::deque<QuantizedParts> parts;
  std::deque<RandomPacked> packed;
  std::vector<TensorView> inputs, outputs;
  Attributes attributes;
  OpCall call;
};

// The expected output `i`: for each expert's matrix, `linear` over its rows of `values`.
std::vector<float> Expected(const Case& c, const Operation& op, size_t i,
                            const std::vector<float>& values, const OpDefinition& linear,
                            std::string_view kernel, const device::Capabilities& caps,
                            ThreadPool& pool) {
  const int64_t m = c.heights[i];
  std::vector<float> expected(op.expert_of.size() * static_cast<size_t>(m), 0.0f);
  const TensorView& stack = op.inputs[2 + 2 * i];
  for (int64_t e = 0; e < c.experts; ++e) {
    std::vector<int64_t> chosen;
    std::vector<float> of_expert;
    for (int64_t row = 0; row < c.tokens * c.choices; ++row) {
      if (op.expert_of[static_cast<size_t>(row)] != e) continue;
      chosen.push_back(row);
      of_expert.insert(of_expert.end(), values.begin() + row * c.k,
                       values.begin() + (row + 1) * c.k);
    }
    const int64_t rows = static_cast<int64_t>(chosen.size());
    TestTensor x(DType::kF32, {rows, c.k}), y(DType::kF32, {rows, m});
    x.Set(of_expert);
    const MatrixOfStack w(stack, e);
    const TensorView bias =
        c.bias ? TensorView::Dense(op.bias[i].view().Row<void>(e), DType::kF32, {m}) : TensorView{};
    const TensorView inputs[] = {x.view(), w.view(), bias};
    const TensorView outputs[] = {y.view()};
    const OpCall call{inputs, outputs, &op.attributes, nullptr};
    const auto same = std::ranges::find_if(linear.kernels, [&](const Kernel& k) {
      return k.name == kernel && k.supports(caps, call);
    });
    EXPECT_NE(same, linear.kernels.end());
    if (same == linear.kernels.end()) return {};
    RunKernel(*same, call, pool);
    const std::vector<float> results = y.ToFloat();
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(results.begin() + row * m, m,
                  expected.begin() + chosen[static_cast<size_t>(row)] * m);
    }
  }
  return expected;
}

void CheckCase(const Case& c, const Format& format, const OpDefinition& op,
               const OpDefinition& linear, const device::Capabilities& caps, Random& random) {
  Operation operation(c, format, random);
  ASSERT_TRUE(op.check(operation.call).ok()) << op.check(operation.call).ToString();
  const std::vector<float> rows = operation.AllRows(c);
  ThreadPool one({.num_threads = 1}), three({.num_threads = 3});
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, operation.call)) {
    SCOPED_TRACE(std::string(kernel->name));
    std::vector<std::vector<float>> expected;
    for (size_t i = 0; i < operation.y.size(); ++i) {
      expected.push_back(Expected(c, operation, i, rows, linear, kernel->name, caps, one));
    }
    std::vector<ThreadPool*> pools = {&one};
    if (conformance::ThreadCounts(caps).size() > 1) pools.push_back(&three);
    for (ThreadPool* pool : pools) {
      for (TestTensor& y : operation.y) y.Poison();
      RunKernel(*kernel, operation.call, *pool);
      for (size_t i = 0; i < operation.y.size(); ++i) {
        EXPECT_TRUE(operation.y[i].GuardsIntact());
        ASSERT_TRUE(BitEqual(operation.y[i].ToFloat(), expected[i]))
            << "output " << i << ", " << pool->num_threads() << " threads";
      }
    }
  }
  // The reference reads packed integers as stored, other kernels may convert them.
  if (c.tokens < 10 && format.packed == nullptr) {
    // The bound of `linear` with |x| <= 3, and |w| <= 4 for values of blocks.
    const double sum = 3 * 4 * static_cast<double>(c.k) + 1;
    conformance::CheckActTypes({.op = op,
                                .caps = caps,
                                .call = operation.call,
                                .act_inputs = 0b1,
                                .tolerance = {.abs = LinearErrorBound(c.k) * sum}});
  }
}

std::vector<Case> Cases() {
  return {{.tokens = 1, .choices = 1, .experts = 1, .heights = {1}, .k = 256, .shared = true},
          {.tokens = 1,
           .choices = 3,
           .experts = 5,
           .heights = {7},
           .k = 256,
           .shared = true,
           .bias = true,
           .misalign_bytes = 4},
          {.tokens = 9,
           .choices = 2,
           .experts = 4,
           .heights = {33, 40},
           .k = 256,
           .shared = true,
           .misalign_bytes = 4,
           .row_padding_bytes = 4},
          {.tokens = 7,
           .choices = 3,
           .experts = 3,
           .heights = {35},
           .k = 256,
           .shared = false,
           .bias = true,
           .routing = Routing::kSomeOfNone,
           .misalign_bytes = 12,
           .row_padding_bytes = 8},
          {.tokens = 40,
           .choices = 4,
           .experts = 3,
           .heights = {33, 9},
           .k = 256,
           .shared = true,
           .bias = true,
           .routing = Routing::kOfARank},
          {.tokens = 3,
           .choices = 1,
           .experts = 2,
           .heights = {4},
           .k = 256,
           .shared = true,
           .routing = Routing::kNone},
          // Several chunks of one expert, in place and not.
          {.tokens = 70,
           .choices = 2,
           .experts = 2,
           .heights = {34},
           .k = 256,
           .shared = false,
           .routing = Routing::kOneExpert},
          {.tokens = 110,
           .choices = 2,
           .experts = 2,
           .heights = {9},
           .k = 256,
           .shared = true,
           .bias = true},
          {.tokens = 0, .choices = 2, .experts = 3, .heights = {5}, .k = 256, .shared = true},
          // Rows that end inside a vector; few and many.
          {.tokens = 2,
           .choices = 2,
           .experts = 2,
           .heights = {3},
           .k = 75,
           .shared = true,
           .misalign_bytes = 4},
          {.tokens = 31,
           .choices = 1,
           .experts = 3,
           .heights = {37},
           .k = 47,
           .shared = false,
           .bias = true}};
}

}  // namespace

void CheckGroupedLinearConformance(const OpDefinition& op, const OpDefinition& linear,
                                   const device::Capabilities& caps) {
  const std::vector<Format> formats = EveryFormat();
  Random random(1);
  for (const Case& c : Cases()) {
    for (const Format& format : formats) {
      const int64_t unit = format.packed != nullptr ? 32 : Info(format.dtype).block_elements;
      if (c.k % unit != 0) continue;
      SCOPED_TRACE(format.Name() + " tokens=" + std::to_string(c.tokens) +
                   " k=" + std::to_string(c.k));
      CheckCase(c, format, op, linear, caps, random);
    }
  }
}

}  // namespace pagemill::ops
