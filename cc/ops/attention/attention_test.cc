#include "cc/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_attention/paged_attention.h"  // kPagedAttentionRounding

namespace pagemill::ops {
namespace {

TEST(Attention, Conformance) {
  CheckAttentionConformance(AttentionOp(), device::DetectCapabilities());
}

// Equal keys have equal weights, so a query gets the mean of the values that it sees.
TEST(Attention, MeansByHand) {
  const int32_t query_start[] = {0, 2, 3};
  const BatchView batch{{.num_tokens = 3, .num_requests = 2, .query_start = query_start}, {}};
  conformance::TestTensor q(DType::kF32, {3, 1, 2}), k(DType::kF32, {3, 1, 2}),
      v(DType::kF32, {3, 1, 2}), y(DType::kF32, {3, 1, 2});
  q.Set(std::vector<float>{1, 2, 3, 4, 5, 6});
  k.Set(std::vector<float>(6, 0.5f));
  v.Set(std::vector<float>{2, 8, 4, 0, 7, 9});
  const TensorView inputs[] = {q.view(), k.view(), v.view()}, outputs[] = {y.view()};
  device::ThreadPool pool({.num_threads = 1});
  for (int causal : {0, 1}) {
    Attributes attributes;
    attributes.Set("scale", 1);
    attributes.Set("causal", causal);
    const OpCall call{
        .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
    const std::vector<float> first = causal ? std::vector<float>{2, 8} : std::vector<float>{3, 4};
    for (const Kernel* kernel :
         conformance::SupportedKernels(AttentionOp(), device::DetectCapabilities(), call)) {
      conformance::RunKernel(*kernel, call, pool);
      const std::vector<float> expected = {first[0], first[1], 3, 4, 7, 9};
      EXPECT_TRUE(conformance::AllClose(y.ToFloat(), expected, {.abs = 1e-5})) << kernel->name;
    }
  }
}

// Two requests of two windows each: the first has rows 0 and 1 of column 0, and row 2; the second
// one row, and a token of another time.
TEST(Attention, WindowsOfTheGridByHand) {
  const int32_t query_start[] = {0, 3, 5};
  const int32_t positions[] = {0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 1, 0, 1};
  const BatchView batch{
      {.num_tokens = 5, .num_requests = 2, .query_start = query_start, .grid_positions = positions},
      {}};
  conformance::TestTensor q(DType::kF32, {5, 1, 1}), k(DType::kF32, {5, 1, 1}),
      v(DType::kF32, {5, 1, 1}), y(DType::kF32, {5, 1, 1});
  q.Set(std::vector<float>(5, 0.5f));
  k.Set(std::vector<float>(5, 0.5f));
  v.Set(std::vector<float>{2, 4, 8, 16, 32});
  const TensorView inputs[] = {q.view(), k.view(), v.view()}, outputs[] = {y.view()};
  device::ThreadPool pool({.num_threads = 1});
  Attributes attributes;
  attributes.Set("scale", 1);
  attributes.Set("causal", 0);
  attributes.Set("grid_window", 2);
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  for (const Kernel* kernel :
       conformance::SupportedKernels(AttentionOp(), device::DetectCapabilities(), call)) {
    conformance::RunKernel(*kernel, call, pool);
    const std::vector<float> expected = {3, 3, 8, 16, 32};
    EXPECT_TRUE(conformance::AllClose(y.ToFloat(), expected, {.abs = 1e-5})) << kernel->name;
  }
}

TEST(Attention, CheckNamesTheMismatch) {
  const BatchView batch{{.num_tokens = 9, .num_requests = 2}, {}};
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](TensorView q, TensorView k, double scale = 1, double causal = 0,
                         double grid_window = 0) {
    Attributes attributes;
    attributes.Set("scale", scale);
    attributes.Set("causal", causal);
    attributes.Set("grid_window", grid_window);
    const TensorView inputs[] = {q, k, k}, outputs[] = {q};
    return AttentionOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch})
        .message();
  };
  EXPECT_EQ(check(view({9, 4, 8}), view({9, 2, 8})), "");
  EXPECT_EQ(check(view({9, 4, 8}), view({9, 2, 7})),
            "attention: k must be f32 [N=9, K=2, D=8], got f32 [9, 2, 7]");
  EXPECT_EQ(check(view({9, 4, 8}), view({9, 3, 8})),
            "attention: 4 query heads are not a multiple of 3 KV heads");
  EXPECT_EQ(check(view({9, 4, 513}), view({9, 4, 513})),
            "attention: head dimension must be 1 to 512, got 513");
  EXPECT_EQ(check(view({9, 4, 8}), view({9, 4, 8}), 0),
            "attention: attribute scale must be a number above 0");
  EXPECT_NE(check(view({9, 4, 8}), view({9, 4, 8}), 1, 2), "");
  EXPECT_EQ(check(view({9, 4, 8}), view({9, 4, 8}), 1, 0, 8), "");
  EXPECT_EQ(check(view({9, 4, 8}), view({9, 4, 8}), 1, 1, 8),
            "attention: grid_window needs causal=0, and no window");
  EXPECT_EQ(check(view({18, 4, 8}), view({18, 4, 8})), "");
  EXPECT_EQ(check(view({18, 4, 8}), view({18, 4, 8}), 1, 0, 8),
            "attention: grid_window needs tokens of one row each");
  EXPECT_EQ(check(view({17, 4, 8}), view({17, 4, 8})),
            "attention: the rows of q, 17, are not a multiple of the batch's 9 tokens");
}

// Biases of each query by the rows and columns of a grid of two: the last query sees one row up and
// one column to the left.
TEST(Attention, BiasesOfAGridByHand) {
  const int32_t query_start[] = {0, 2};
  const BatchView batch{{.num_tokens = 2, .num_requests = 1, .query_start = query_start}, {}};
  conformance::TestTensor q(DType::kF32, {4, 1, 1}), k(DType::kF32, {4, 1, 1}),
      v(DType::kF32, {4, 1, 1}), y(DType::kF32, {4, 1, 1});
  q.Set(std::vector<float>(4, 0));
  k.Set(std::vector<float>(4, 0));
  v.Set(std::vector<float>{1, 10, 100, 1000});
  constexpr float kNone = -1e4f;
  // From one row up to one row down; columns likewise. Query 0 sees what is down, 1 what is left
  // of it, 2 itself, 3 what is up and left.
  std::vector<float> rows = {kNone, kNone, 0, kNone, 0, kNone, kNone, 0, kNone, 0, kNone, kNone};
  std::vector<float> columns = {kNone, 0, kNone, 0, kNone, kNone, kNone, 0, kNone, 0, kNone, kNone};
  const TensorView inputs[] = {q.view(), k.view(), v.view(),
                               TensorView::Dense(rows.data(), DType::kF32, {4, 1, 3}),
                               TensorView::Dense(columns.data(), DType::kF32, {4, 1, 3})};
  const TensorView outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("scale", 1);
  attributes.Set("causal", 0);
  attributes.Set("grid_columns", 2);
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  ASSERT_TRUE(AttentionOp().check(call).ok()) << AttentionOp().check(call).message();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(AttentionOp(), device::DetectCapabilities(), call)) {
    conformance::RunKernel(*kernel, call, pool);
    const std::vector<float> expected = {100, 1, 100, 1};
    EXPECT_TRUE(conformance::AllClose(y.ToFloat(), expected, {.abs = 1e-3})) << kernel->name;
  }
}

// Biases of each key of the second request: token 0 is seen by itself alone, token 1 by those in
// front of it, token 2 by those behind it, and token 3 by all.
TEST(Attention, BiasesOfKeysByHand) {
  const int32_t query_start[] = {0, 1, 5};
  const BatchView batch{{.num_tokens = 5, .num_requests = 2, .query_start = query_start}, {}};
  conformance::TestTensor q(DType::kF32, {5, 1, 1}), k(DType::kF32, {5, 1, 1}),
      v(DType::kF32, {5, 1, 1}), y(DType::kF32, {5, 1, 1});
  q.Set(std::vector<float>(5, 0));
  k.Set(std::vector<float>(5, 0));
  v.Set(std::vector<float>{7, 1, 10, 100, 1000});
  constexpr float kNone = -1e4f;
  // The entries of each key: for queries behind it, at it and in front of it.
  std::vector<float> biases = {0, 0, 0, kNone, 0, kNone, kNone, kNone, 0, 0, kNone, kNone, 0, 0, 0};
  const TensorView inputs[] = {q.view(), k.view(),
                               v.view(), {},
                               {},       TensorView::Dense(biases.data(), DType::kF32, {5, 1, 3})};
  const TensorView outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("scale", 1);
  attributes.Set("causal", 0);
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  ASSERT_TRUE(AttentionOp().check(call).ok()) << AttentionOp().check(call).message();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(AttentionOp(), device::DetectCapabilities(), call)) {
    conformance::RunKernel(*kernel, call, pool);
    const std::vector<float> expected = {7, 337, 1000, 1000, 550};
    EXPECT_TRUE(conformance::AllClose(y.ToFloat(), expected, {.abs = 1e-3})) << kernel->name;
  }
}

// Two keys whose products are 100, and whose sums with biases are 100, which the cap of log 3 turns
// into log 3, and 0. Weights are 3 and 1, and 4 that of the sink, if there is one.
TEST(Attention, CapsAndSinksByHand) {
  const int32_t query_start[] = {0, 2};
  const BatchView batch{{.num_tokens = 2, .num_requests = 1, .query_start = query_start}, {}};
  conformance::TestTensor q(DType::kF32, {2, 1, 1}), k(DType::kF32, {2, 1, 1}),
      v(DType::kF32, {2, 1, 1}), y(DType::kF32, {2, 1, 1});
  q.Set(std::vector<float>(2, 10));
  k.Set(std::vector<float>(2, 10));
  v.Set(std::vector<float>{8, 80});
  // Biases of queries at the distance 0, which farther keys share; then those of each key.
  std::vector<float> biases = {-50}, key_biases = {50, -50}, sinks = {std::log(4.0f)};
  const TensorView rows = TensorView::Dense(biases.data(), DType::kF32, {1, 1});
  const TensorView keys = TensorView::Dense(key_biases.data(), DType::kF32, {2, 1, 1});
  Attributes attributes;
  attributes.Set("scale", 1);
  attributes.Set("causal", 0);
  attributes.Set("soft_cap", std::log(3.0));
  device::ThreadPool pool({.num_threads = 1});
  for (bool with_sinks : {false, true}) {
    const TensorView inputs[] = {
        q.view(),
        k.view(),
        v.view(),
        rows,
        {},
        keys,
        with_sinks ? TensorView::Dense(sinks.data(), DType::kF32, {1}) : TensorView{}};
    const TensorView outputs[] = {y.view()};
    const OpCall call{
        .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
    ASSERT_TRUE(AttentionOp().check(call).ok()) << AttentionOp().check(call).message();
    const float expected = (3 * 8 + 80) / (with_sinks ? 8.0f : 4.0f);
    for (const Kernel* kernel :
         conformance::SupportedKernels(AttentionOp(), device::DetectCapabilities(), call)) {
      conformance::RunKernel(*kernel, call, pool);
      // Weights of some kernels are rounded to bf16.
      EXPECT_TRUE(conformance::AllClose(y.ToFloat(), std::vector<float>(2, expected),
                                        {.abs = 80 * kPagedAttentionRounding}))
          << kernel->name;
    }
  }
}

TEST(Attention, CheckOfBiasesNamesTheMismatch) {
  const BatchView batch{{.num_tokens = 9, .num_requests = 2}, {}};
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](TensorView biases, TensorView columns, TensorView keys,
                         double grid_columns = 0, TensorView sinks = {}, double soft_cap = 0) {
    Attributes attributes;
    attributes.Set("soft_cap", soft_cap);
    attributes.Set("scale", 1);
    attributes.Set("causal", 0);
    attributes.Set("grid_columns", grid_columns);
    const TensorView q = view({9, 4, 8});
    const TensorView inputs[] = {q, q, q, biases, columns, keys, sinks}, outputs[] = {q};
    return AttentionOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch})
        .message();
  };
  EXPECT_EQ(check({}, {}, view({9, 4, 7})), "");
  EXPECT_EQ(check(view({4, 3}), {}, view({9, 4, 7})), "");
  EXPECT_EQ(check(view({9, 4, 3}), view({4, 5}), {}, 3), "");
  EXPECT_EQ(check({}, {}, view({4, 7})),
            "attention: key_biases must be f32 [N=9, Q=4, Y], got f32 [4, 7]");
  EXPECT_EQ(check({}, {}, view({9, 4, 6})),
            "attention: key_biases must be of 2 * reach + 1 distances, at most 65536, got 6");
  EXPECT_EQ(check({}, view({4, 5}), {}, 3),
            "attention: column_biases need biases of the grid's rows");
  EXPECT_EQ(check(view({4, 3}), view({4, 5}), view({9, 4, 7}), 3),
            "attention: key_biases are by the distance of positions: grid_columns excludes them");
  EXPECT_EQ(check({}, {}, {}, 0, view({4}), 50), "");
  EXPECT_EQ(check({}, {}, {}, 0, view({5})), "attention: sinks must be f32 [Q=4], got f32 [5]");
  for (double soft_cap : {kMinSoftCap, kMaxSoftCap}) {
    EXPECT_EQ(check({}, {}, {}, 0, {}, soft_cap), "");
  }
  for (double soft_cap : {-1.0, kMinSoftCap / 2, kMaxSoftCap * 2, static_cast<double>(INFINITY),
                          static_cast<double>(NAN)}) {
    EXPECT_EQ(check({}, {}, {}, 0, {}, soft_cap),
              "attention: attribute soft_cap must be 0 (none) or 1e-5 to 1e5");
  }
}

}  // namespace
}  // namespace pagemill::ops
