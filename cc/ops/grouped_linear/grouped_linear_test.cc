#include "cc/ops/grouped_linear/grouped_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/grouped_linear/expert_rows.h"
#include "cc/ops/linear/linear.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

TEST(GroupedLinear, Conformance) {
  CheckGroupedLinearConformance(GroupedLinearOp(), LinearOp(), device::DetectCapabilities());
}

// The same kernel runs a model's experts and its other matrices.
TEST(GroupedLinear, TakesTheKernelsOfLinear) {
  const device::Capabilities caps = device::DetectCapabilities();
  const TensorView x = TensorView::Dense(nullptr, DType::kF32, {2, 256});
  const TensorView ids = TensorView::Dense(nullptr, DType::kI32, {2, 3});
  const TensorView grouped_y = TensorView::Dense(nullptr, DType::kF32, {2, 3, 8});
  const TensorView y = TensorView::Dense(nullptr, DType::kF32, {2, 8});
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ4_1, DType::kQ6_K}) {
    const TensorView w = TensorView::Dense(nullptr, dtype, {8, 256});
    const TensorView stack = TensorView::Dense(nullptr, dtype, {4, 8, 256});
    const TensorView inputs[] = {x, w, {}}, grouped_inputs[] = {x, ids, stack, {}};
    const TensorView outputs[] = {y}, grouped_outputs[] = {grouped_y};
    for (auto limit : {Precision::kF32, Precision::kMixedBlock, Precision::kInt8Block}) {
      const auto linear = ChooseKernel(LinearOp(), caps, {.inputs = inputs, .outputs = outputs},
                                       {.activations = limit});
      const auto grouped = ChooseKernel(GroupedLinearOp(), caps,
                                        {.inputs = grouped_inputs, .outputs = grouped_outputs},
                                        {.activations = limit});
      EXPECT_EQ((*grouped)->name, (*linear)->name);
      EXPECT_EQ((*grouped)->activations, (*linear)->activations);
      EXPECT_EQ((*grouped)->packing == nullptr, (*linear)->packing == nullptr);
    }
  }
}

// The packed stack is each matrix packed by `linear`, one after the other.
TEST(GroupedLinear, PacksMatrixByMatrix) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 1});
  Random random(2);
  TestTensor x(DType::kF32, {1, 64}), y(DType::kF32, {1, 1, 35});
  TestTensor ids(DType::kI32, {1, 1}), stack(DType::kBF16, {3, 35, 64});
  stack.FillUniform(random, -1, 1);
  const TensorView inputs[] = {x.view(), ids.view(), stack.view(), {}};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs};
  for (const Kernel* kernel : conformance::SupportedKernels(GroupedLinearOp(), caps, call)) {
    const WeightPacking* packing = PackingOf(*kernel, grouped_linear::WeightOperand(0));
    if (packing == nullptr) continue;
    EXPECT_EQ(PackingOf(*kernel, 1), nullptr) << "ids are no weights";
    const auto same = std::ranges::find(LinearOp().kernels, kernel->name, &Kernel::name);
    ASSERT_NE(same, LinearOp().kernels.end());
    EXPECT_EQ(same->packing->layout, packing->layout);
    const int64_t bytes = same->packing->bytes(grouped_linear::ExpertView(stack.view(), 0));
    ASSERT_EQ(packing->bytes(stack.view()), 3 * bytes);
    std::vector<std::byte> together(static_cast<size_t>(3 * bytes)), alone(together.size());
    EXPECT_TRUE(packing->pack(stack.view(), together.data(), pool).ok());
    for (int64_t e = 0; e < 3; ++e) {
      const TensorView matrix = grouped_linear::ExpertView(stack.view(), e);
      EXPECT_TRUE(same->packing->pack(matrix, alone.data() + e * bytes, pool).ok());
    }
    EXPECT_EQ(together, alone) << kernel->name;
  }
}

// A NaN in one row of x affects only the outputs of that row, even among rows of the same expert.
TEST(GroupedLinear, RowsDoNotMix) {
  Random random(4);
  device::ThreadPool pool({.num_threads = 2});
  TestTensor x(DType::kF32, {7, 64}), w(DType::kQ8_0, {2, 5, 64}), y(DType::kF32, {7, 2, 5});
  TestTensor ids(DType::kI32, {7, 2});
  x.FillUniform(random, -1, 1);
  w.FillUniform(random, -1, 1);
  ids.FillUniform(random, 0, 1);
  x.view().Row<float>(3)[17] = std::nanf("");
  const TensorView inputs[] = {x.view(), ids.view(), w.view(), {}};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs};
  for (const Kernel* kernel :
       conformance::SupportedKernels(GroupedLinearOp(), device::DetectCapabilities(), call)) {
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const std::vector<float> values = y.ToFloat();
    for (int i = 0; i < 70; ++i) EXPECT_EQ(std::isnan(values[i]), i / 10 == 3) << kernel->name;
  }
}

// Every row is in exactly one chunk of its expert, in ascending order, and no chunk has too many
// rows.
TEST(ExpertRows, EveryRowOnce) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const int64_t tokens = random.Int(0, 40), choices = random.Int(1, 4);
    const int64_t experts = random.Int(1, 12), max_rows = random.Int(1, 9);
    TestTensor ids(DType::kI32, {tokens, choices}, {.row_padding_bytes = 4});
    ids.FillUniform(random, -1, static_cast<float>(random.Int(0, experts)));
    const int64_t rows = tokens * choices;
    const int64_t bytes = grouped_linear::ExpertRowsBytes(rows, experts, max_rows);
    TestTensor workspace(DType::kU8, {1, bytes});
    const grouped_linear::ExpertRows sorted =
        grouped_linear::SortRows(ids.view(), experts, max_rows,
                                 {workspace.view().Data<std::byte>(), static_cast<size_t>(bytes)});
    EXPECT_TRUE(workspace.GuardsIntact());
    const std::vector<float> id_of = ids.ToFloat();
    std::vector<int> seen(static_cast<size_t>(rows));
    int64_t chunks = 0, expert = -1;
    for (const grouped_linear::ExpertGroup& group : sorted.groups) {
      EXPECT_GT(group.expert, expert) << "in the order of their experts";
      expert = group.expert;
      EXPECT_EQ(group.first_chunk, chunks);
      int32_t last = -1;
      for (; chunks < group.end_chunk; ++chunks) {
        const grouped_linear::Chunk& chunk = sorted.chunks[static_cast<size_t>(chunks)];
        EXPECT_TRUE(chunk.count >= 1 && chunk.count <= max_rows);
        for (int64_t i = 0; i < chunk.count; last = chunk.rows[i++]) {
          EXPECT_GT(chunk.rows[i], last);
          EXPECT_EQ(id_of[static_cast<size_t>(chunk.rows[i])], static_cast<float>(expert));
          ++seen[static_cast<size_t>(chunk.rows[i])];
        }
      }
    }
    EXPECT_EQ(static_cast<size_t>(chunks), sorted.chunks.size());
    EXPECT_LE(chunks, grouped_linear::MaxChunks(rows, experts, max_rows));
    for (const int32_t row : sorted.without_expert) {
      const float id = id_of[static_cast<size_t>(row)];
      EXPECT_TRUE(id < 0 || id >= static_cast<float>(experts));
      ++seen[static_cast<size_t>(row)];
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int times) { return times == 1; }));
  }
}

class GroupedLinearCheck : public ::testing::Test {
 protected:
  static TensorView View(DType dtype, std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, dtype, dims);
  }
  static Status Check(const TensorView& x, const TensorView& ids, const TensorView& w,
                      const TensorView& y, const TensorView& bias = {}) {
    const TensorView inputs[] = {x, ids, w, bias};
    const TensorView outputs[] = {y};
    const Attributes attributes;
    return GroupedLinearOp().check(
        {.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  }
  static constexpr DType kF32 = DType::kF32;
  const TensorView ids = View(DType::kI32, {8, 2});
  const TensorView w = View(DType::kQ4_0, {4, 18, 64});
};

TEST_F(GroupedLinearCheck, AcceptsSharedAndSeparateRows) {
  EXPECT_TRUE(Check(View(kF32, {8, 64}), ids, w, View(kF32, {8, 2, 18})).ok());
  EXPECT_TRUE(Check(View(kF32, {8, 2, 64}), ids, w, View(kF32, {8, 2, 9, 2})).ok());
  EXPECT_TRUE(
      Check(View(kF32, {8, 4, 16}), ids, w, View(kF32, {8, 2, 18}), View(kF32, {4, 18})).ok());
}

TEST_F(GroupedLinearCheck, NamesTheMismatch) {
  const TensorView x = View(kF32, {8, 64}), y = View(kF32, {8, 2, 18});
  EXPECT_EQ(Check(View(kF32, {8, 96}), ids, w, y).message(),
            "grouped_linear: x has 96 elements a token, neither K nor J * K");
  EXPECT_EQ(Check(View(kF32, {7, 64}), ids, w, y).message(),
            "grouped_linear: x must be f32 [N=8, X*], got f32 [7, 64]");
  EXPECT_EQ(Check(x, View(kF32, {8, 2}), w, y).message(),
            "grouped_linear: ids must be i32 [N, J], got f32 [8, 2]");
  EXPECT_EQ(Check(x, ids, View(DType::kQ4_0, {18, 64}), y).message(),
            "grouped_linear: W must be q4_0 [E=18, M=64, K], got q4_0 [18, 64]");
  EXPECT_FALSE(Check(x, ids, View(DType::kI8, {4, 18, 64}), y).ok());
  EXPECT_FALSE(Check(x, ids, w, View(kF32, {8, 3, 18})).ok());
  EXPECT_FALSE(Check(x, ids, w, y, View(kF32, {18})).ok());
}

}  // namespace
}  // namespace pagemill::ops
