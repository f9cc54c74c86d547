#include "cc/ops/paged_attention/paged_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_attention/attention_case.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

TEST(PagedAttention, Conformance) {
  CheckPagedAttentionConformance(PagedAttentionOp(), device::DetectCapabilities());
}

TEST(PagedAttention, Invariance) {
  CheckPagedAttentionInvariance(PagedAttentionOp(), device::DetectCapabilities());
}

// The reference on a case computed by hand: two keys, one dimension.
TEST(PagedAttention, TwoKeysByHand) {
  const int32_t query_start[] = {0, 1}, seq_lens[] = {2}, block_table[] = {0};
  const BatchView batch{
      {.num_tokens = 1, .num_requests = 1, .query_start = query_start, .seq_lens = seq_lens},
      {.block_size = 16, .block_table = block_table, .block_table_stride = 1}};
  conformance::TestTensor q(DType::kF32, {1, 1, 1}), y(DType::kF32, {1, 1, 1});
  conformance::TestTensor cache(DType::kF32, {1, 32});
  q.Set(std::vector<float>{2});
  float* block = cache.view().Data<float>();
  block[0] = 0;  // keys, then values
  block[1] = std::log(3.0f);
  block[16] = 1;
  block[17] = 5;
  Attributes attributes;
  attributes.Set("scale", 0.5);
  const TensorView inputs[] = {q.view(), cache.view()}, outputs[] = {y.view()};
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(PagedAttentionOp(), device::DetectCapabilities(), call)) {
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_NEAR(y.ToFloat()[0], 1 * 0.25 + 5 * 0.75, 1e-6) << kernel->name;
  }
}

// At position 4, scores 0 and ln 3 grow by ln 4 / ln 2 = 2: weights 1 and 9.
TEST(PagedAttention, GrowsByHand) {
  const int32_t query_start[] = {0, 1}, seq_lens[] = {5}, block_table[] = {0};
  const BatchView batch{
      {.num_tokens = 1, .num_requests = 1, .query_start = query_start, .seq_lens = seq_lens},
      {.block_size = 16, .block_table = block_table, .block_table_stride = 1}};
  conformance::TestTensor q(DType::kF32, {1, 1, 1}), y(DType::kF32, {1, 1, 1});
  conformance::TestTensor cache(DType::kF32, {1, 32});
  q.Set(std::vector<float>{2});
  float* block = cache.view().Data<float>();
  block[3] = 0;  // keys, then values
  block[4] = std::log(3.0f);
  block[16 + 3] = 1;
  block[16 + 4] = 5;
  Attributes attributes, of_one;
  for (Attributes* each : {&attributes, &of_one}) {
    each->Set("scale", 0.5);
    each->Set("window", 2);
    each->Set("grows_from", each == &of_one ? 1 : 2);
  }
  const TensorView inputs[] = {q.view(), cache.view()}, outputs[] = {y.view()};
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  OpCall refused = call;
  refused.attributes = &of_one;
  EXPECT_EQ(PagedAttentionOp().check(refused).message(),
            "paged_attention: attribute grows_from must be 0 (nothing grows) or 2 or more");
  ASSERT_TRUE(PagedAttentionOp().check(call).ok()) << PagedAttentionOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(PagedAttentionOp(), device::DetectCapabilities(), call)) {
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_NEAR(y.ToFloat()[0], 1 * 0.1 + 5 * 0.9, 1e-5) << kernel->name;
  }
}

// The key at the query's own position weighs 1, the one before 4^-1, the sink 2.
TEST(PagedAttention, SinkAndSlopeByHand) {
  conformance::AttentionCase c({.q_heads = 1,
                                .kv_heads = 1,
                                .head_dim = 1,
                                .dtype = DType::kF32,
                                .sinks = true,
                                .slopes = true,
                                .zero_queries = true},
                               {{.context = 1, .tokens = 1}});
  const OpCall& call = c.call();
  TensorView sinks = call.inputs[2], slopes = call.inputs[3], cache = call.inputs[1];
  sinks.Data<float>()[0] = std::log(2.0f);
  slopes.Data<float>()[0] = std::log(4.0f);
  float* values = cache.Row<float>(c.batch().block_table[0]) + 16;
  values[0] = 8;
  values[1] = 13;
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(PagedAttentionOp(), device::DetectCapabilities(), call)) {
    EXPECT_NEAR(c.Run(*kernel, pool)[0], (8 * 0.25 + 13) / (0.25 + 1 + 2), 1e-5) << kernel->name;
  }
}

// A stored infinity or NaN makes every row that sees the key NaN, and no others.
TEST(PagedAttention, NaNScalesMakeRowsThatSeeThemNaN) {
  for (const bool of_value : {false, true}) {
    conformance::AttentionCase c({.q_heads = 1, .kv_heads = 1, .head_dim = 4, .dtype = DType::kI8},
                                 {{.context = 20, .tokens = 1}, {.context = 20, .tokens = 1}});
    TensorView cache = c.call().inputs[1];
    std::byte* scales = cache.Row<std::byte>(c.batch().block_table[0]) + 2 * 4 * 16;
    const float nan = std::nanf("");
    std::memcpy(scales + (of_value ? 16 + 3 : 3) * sizeof(float), &nan, sizeof(nan));
    device::ThreadPool pool({.num_threads = 1});
    for (const Kernel* kernel : conformance::SupportedKernels(
             PagedAttentionOp(), device::DetectCapabilities(), c.call())) {
      const std::vector<float> y = c.Run(*kernel, pool);
      EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[3])) << kernel->name << " " << of_value;
      EXPECT_FALSE(std::isnan(y[4]) || std::isnan(y[7])) << kernel->name << " " << of_value;
    }
  }
}

// The weight of a single key is 1.
TEST(PagedAttention, EveryF8ValueIsDecoded) {
  conformance::AttentionCase c(
      {.q_heads = 1, .kv_heads = 1, .head_dim = 256, .dtype = DType::kF8E4M3, .zero_queries = true},
      {{.context = 0, .tokens = 1}});
  TensorView cache = c.call().inputs[1];
  uint8_t* value = cache.Row<uint8_t>(c.batch().block_table[0]) + 256 * 16;
  for (int code = 0; code < 256; ++code) value[code] = static_cast<uint8_t>(code);
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(PagedAttentionOp(), device::DetectCapabilities(), c.call())) {
    const std::vector<float> y = c.Run(*kernel, pool);
    for (int code = 0; code < 256; ++code) {
      const float expected = F8E4M3ToFloat(static_cast<uint8_t>(code));
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y[code])) << kernel->name << " " << code;
      } else {
        EXPECT_EQ(y[code], expected) << kernel->name << " " << code;
      }
    }
  }
}

// For each code, a request of two keys, 0 and the code, and a query that is the code's inverse: the
// weight of the code is e times that of the other key, whose value is 0.
TEST(PagedAttention, EveryF8KeyIsDecoded) {
  const std::vector<conformance::PagedRequest> requests(256, {.context = 1, .tokens = 1});
  conformance::AttentionCase c(
      {.q_heads = 1, .kv_heads = 1, .head_dim = 1, .dtype = DType::kF8E4M3}, requests);
  TensorView q = c.call().inputs[0], cache = c.call().inputs[1];
  for (int code = 0; code < 256; ++code) {
    uint8_t* block = cache.Row<uint8_t>(c.batch().block_table[code * c.batch().block_table_stride]);
    const float key = F8E4M3ToFloat(static_cast<uint8_t>(code));
    q.Row<float>(code)[0] = key == 0 || std::isnan(key) ? 1 : 1 / key;
    block[0] = 0;
    block[1] = static_cast<uint8_t>(code);
    block[16] = 0;
    block[17] = 0x38;  // 1
  }
  device::ThreadPool pool({.num_threads = 1});
  const float weight = std::exp(1.0f) / (1 + std::exp(1.0f));
  for (const Kernel* kernel :
       conformance::SupportedKernels(PagedAttentionOp(), device::DetectCapabilities(), c.call())) {
    const std::vector<float> y = c.Run(*kernel, pool);
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) == 0x7f) {
        EXPECT_TRUE(std::isnan(y[code])) << kernel->name << " " << code;
      } else {
        EXPECT_NEAR(y[code], (code & 0x7f) == 0 ? 0.5f : weight, 2e-3)
            << kernel->name << " " << code;
      }
    }
  }
}

TEST(PagedAttention, RefusesMismatchedOperands) {
  const TensorView q = TensorView::Dense(nullptr, DType::kF32, {4, 6, 8});
  const BatchView batch{{}, {.block_size = 16}};
  const auto check = [&](int64_t kv_heads, std::vector<std::pair<const char*, double>> values,
                         const BatchView* view, int64_t sinks = 0, int64_t slopes = 0) {
    const TensorView cache = TensorView::Dense(nullptr, DType::kBF16, {5, 2 * kv_heads * 8 * 16});
    Attributes attributes;
    for (const auto& [name, value] : values) attributes.Set(name, value);
    TensorView inputs[] = {q, cache, {}, {}};
    if (sinks > 0) inputs[2] = TensorView::Dense(nullptr, DType::kF32, {sinks});
    if (slopes > 0) inputs[3] = TensorView::Dense(nullptr, DType::kF32, {slopes});
    return PagedAttentionOp()
        .check({.inputs = inputs, .outputs = {&q, 1}, .attributes = &attributes, .batch = view})
        .ok();
  };
  EXPECT_TRUE(check(2, {{"scale", 0.1}}, &batch));
  EXPECT_TRUE(check(6, {{"scale", 0.1}, {"window", 512}}, &batch));
  EXPECT_TRUE(check(2, {{"scale", 0.1}}, &batch, 6, 6));
  EXPECT_FALSE(check(2, {{"scale", 0.1}}, &batch, 5));
  EXPECT_FALSE(check(2, {{"scale", 0.1}}, &batch, 0, 2));
  EXPECT_FALSE(check(4, {{"scale", 0.1}}, &batch));
  EXPECT_FALSE(check(2, {}, &batch));
  EXPECT_FALSE(check(2, {{"scale", 0.1}}, nullptr));
  EXPECT_FALSE(check(2, {{"scale", 0.1}, {"window", -1}}, &batch));
  EXPECT_TRUE(check(2, {{"scale", 0.1}, {"window", 4}, {"causal", 0}}, &batch));
  EXPECT_TRUE(check(2, {{"scale", 0.1}, {"window", 4}, {"chunked", 1}}, &batch));
  EXPECT_FALSE(check(2, {{"scale", 0.1}, {"chunked", 1}}, &batch));
  for (double soft_cap : {kMinSoftCap, 50.0, kMaxSoftCap}) {
    EXPECT_TRUE(check(2, {{"scale", 0.1}, {"soft_cap", soft_cap}}, &batch)) << soft_cap;
  }
  for (double soft_cap : {-1.0, kMinSoftCap / 2, kMaxSoftCap * 2}) {
    EXPECT_FALSE(check(2, {{"scale", 0.1}, {"soft_cap", soft_cap}}, &batch)) << soft_cap;
  }
}

}  // namespace
}  // namespace pagemill::ops
