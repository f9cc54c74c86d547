#include "cc/ops/matrix_wkv/matrix_wkv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::AllClose;
using conformance::TestTensor;

TEST(MatrixWkv, Conformance) {
  CheckMatrixWkvConformance(MatrixWkvOp(), device::DetectCapabilities());
}

TestTensor Tensor(std::initializer_list<int64_t> dims, const std::vector<float>& values) {
  TestTensor tensor(DType::kF32, dims);
  tensor.Set(values);
  return tensor;
}

// A request of two tokens, with one head of two keys and one value. `inputs` are all but the state.
// Expects y, own if keys are removed, and the state after them.
void ExpectByHand(const std::vector<TensorView>& inputs, const std::vector<float>& y,
                  const std::vector<float>& own, const std::vector<float>& state_after) {
  const int32_t starts[] = {0, 2}, lengths[] = {2}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 2, .num_requests = 1, .query_start = starts, .seq_lens = lengths},
      {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  TestTensor state(DType::kF32, {2, 1, 2, 1});
  TestTensor results(DType::kF32, {2, 1}), owns(DType::kF32, {2, 1});
  std::vector<TensorView> all = inputs;
  all.push_back(state.view());
  std::vector<TensorView> outputs = {results.view()};
  if (!own.empty()) outputs.push_back(owns.view());
  const Attributes attributes;
  const OpCall call{.inputs = all, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(MatrixWkvOp(), device::DetectCapabilities(), call)) {
    state.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const conformance::Tolerance close{.abs = 1e-6, .rel = 2e-6};
    EXPECT_TRUE(AllClose(results.ToFloat(), y, close)) << kernel->name;
    if (!own.empty()) {
      EXPECT_TRUE(AllClose(owns.ToFloat(), own, close)) << kernel->name;
    }
    const std::vector<float> pages = state.ToFloat();
    EXPECT_TRUE(AllClose(std::span(pages).subspan(2), state_after, close)) << kernel->name;
  }
}

// Key 0 halves with each token, key 1 stays. The first token has only its bonus: r^T (bonus k) is
// 1 * 2 * 1 + 1 * 3 * 2. The second finds S = (10, 20), then adds 3 * (1, 0).
TEST(MatrixWkv, ReadsTheStateBeforeTheTokenAndItsBonus) {
  const float half = std::log(std::log(2.0f)), never = -100;  // exp(-exp(half)) = 1/2
  const TestTensor receptance = Tensor({2, 2}, {1, 1, 1, 2}), key = Tensor({2, 2}, {1, 2, 1, 0});
  const TestTensor value = Tensor({2, 1}, {10, 3}), bonus = Tensor({2}, {2, 3});
  const std::vector<float> y = {80, 50 + 6}, state = {5 + 3, 20};
  const TensorView missing;
  for (const TestTensor& decay :
       {Tensor({2}, {half, never}), Tensor({2, 2}, {half, never, half, never})}) {
    ExpectByHand({receptance.view(), decay.view(), key.view(), value.view(), bonus.view(), missing,
                  missing, missing},
                 y, {}, state);
  }
}

// A decay of exp(-exp(-1/2) / 2) of both keys. The first token stores 10 under the key (3, 4),
// times 1 + boost (a - 1) with a = 1 and 1/2; the second removes what is stored under (1, 0), with
// a = 1.
TEST(MatrixWkv, RemovesKeys) {
  const float sure = 100, none = 0;
  const TestTensor receptance = Tensor({2, 2}, {1, 1, 1, 1}), key = Tensor({2, 2}, {3, 4, 2, 0});
  const TestTensor value = Tensor({2, 1}, {10, 5}), bonus = Tensor({2}, {1, 2});
  const TestTensor decay = Tensor({2, 2}, {0, 0, 0, 0});
  const TestTensor rate = Tensor({2, 2}, {sure, none, sure, none});
  const TestTensor removal = Tensor({2}, {7, 7}), boost = Tensor({2}, {1, 0.5f});
  const float kept = std::exp(kWkvDecayScale / 2);
  // S = (30, 30): y = 60. Then row 0 loses its 30, and gets 2 * 5.
  const float row_0 = 30 * kept - 30 + 10, row_1 = 30 * kept;
  ExpectByHand({receptance.view(), decay.view(), key.view(), value.view(), bonus.view(),
                rate.view(), removal.view(), boost.view()},
               {60, row_0 + row_1}, {90, 10}, {row_0, row_1});
}

TEST(MatrixWkv, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](int64_t width, int64_t keys, const TensorView& rate, size_t outputs) {
    const bool removes = rate.rank > 0;
    const TensorView vector = removes ? view({width}) : TensorView{};
    const TensorView inputs[] = {view({9, width}), view({width}), view({9, width}),
                                 view({9, 2, 8}),  view({width}), rate,
                                 vector,           vector,        view({5, 2, keys, 8})};
    const TensorView both[] = {view({9, 16}), view({9, 16})};
    const Attributes attributes;
    const OpCall call{
        .inputs = inputs, .outputs = std::span(both).first(outputs), .attributes = &attributes};
    return std::string(MatrixWkvOp().check(call).message());
  };
  EXPECT_EQ(check(12, 6, {}, 1), "");
  EXPECT_EQ(check(12, 6, view({9, 12}), 2), "");
  EXPECT_EQ(check(12, 6, {}, 2), "matrix_wkv: takes 9 inputs and gives 1 outputs, got 9 and 2");
  EXPECT_NE(check(12, 6, view({9, 11}), 2).find("rate must be"), std::string::npos);
  EXPECT_EQ(check(12, 7, {}, 1),
            "matrix_wkv: rows must have 14 elements, those of values 16, got 12 and 16");
  EXPECT_EQ(check(514, 257, {}, 1), "matrix_wkv: keys must have at most 256 elements, got 257");
}

}  // namespace
}  // namespace pagemill::ops
