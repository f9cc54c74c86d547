#include "cc/ops/latent_attention/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_attention/latent_case.h"
#include "cc/ops/latent_write/latent_f8_row.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

TEST(LatentAttention, Conformance) {
  CheckLatentAttentionConformance(LatentAttentionOp(), device::DetectCapabilities());
}

TEST(LatentAttention, Invariance) {
  CheckLatentAttentionInvariance(LatentAttentionOp(), device::DetectCapabilities());
}

// Two tokens of latents (1, 0) and (0, 1) with rotated keys 0 and 1: the query prefers the second
// by ln 3, once through its latent part and once through the rotated one.
TEST(LatentAttention, ByHand) {
  const int32_t starts[] = {0, 1}, lens[] = {2}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 1, .num_requests = 1, .query_start = starts, .seq_lens = lens},
      {.block_size = 2, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor q(DType::kF32, {1, 2, 2}), rope(DType::kF32, {1, 2, 1});
  conformance::TestTensor cache(DType::kF32, {2, 2, 3}), y(DType::kF32, {1, 2, 2});
  const float log3 = std::log(3.0f);
  q.Set(std::vector<float>{0, 2 * log3, 5, 5});
  rope.Set(std::vector<float>{0, 2 * log3});
  const float nan = std::nanf("");
  cache.Set(std::vector<float>{nan, nan, nan, nan, nan, nan, 1, 0, 0, 0, 1, 1});
  const TensorView inputs[] = {q.view(), rope.view(), cache.view()}, outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("scale", 0.5);
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(LatentAttentionOp(), device::DetectCapabilities(), call)) {
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::AllClose(y.ToFloat(), std::vector<float>{0.25f, 0.75f, 0.25f, 0.75f},
                                      {.abs = 1e-6}))
        << kernel->name;
  }
}

// With both tokens chosen the bits are those without a choice; with one, its latent.
TEST(LatentAttention, AttendsToWhatIsChosen) {
  const std::vector<conformance::PagedRequest> requests = {{.context = 9, .tokens = 3}};
  conformance::LatentCase all({.heads = 3}, requests);
  conformance::LatentCase each({.heads = 3, .choices = 12}, requests);
  conformance::LatentCase last({.heads = 3, .dtype = DType::kF32, .choices = 1}, requests);
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : conformance::SupportedKernels(
           LatentAttentionOp(), device::DetectCapabilities(), all.call())) {
    EXPECT_TRUE(conformance::BitEqual(each.Run(*kernel, pool), all.Run(*kernel, pool)))
        << kernel->name;
    const std::vector<float> y = last.Run(*kernel, pool);
    const TensorView& cache = last.call().inputs[2];
    const int64_t page = last.call().batch->block_table[0];
    for (int i = 0; i < 40; ++i) {  // of the last token, at position 11
      EXPECT_FLOAT_EQ(y[2 * 120 + i], cache.Row<const float>(page)[11 * 52 + i]) << kernel->name;
    }
  }
}

// A cache in fp8 and one in bf16 with the same values give the same bits, for rows are decoded
// exactly.
TEST(LatentAttention, DecodesF8Exactly) {
  conformance::LatentOptions options{
      .heads = 5, .size = 200, .rope_size = 24, .dtype = DType::kF8E4M3, .bf16_elements = 24};
  const std::vector<conformance::PagedRequest> requests = {{70, 1}, {0, 50}};
  conformance::LatentCase narrow(options, requests);
  options.dtype = DType::kBF16;
  conformance::LatentCase wide(options, requests);
  const TensorView& from = narrow.call().inputs[2];
  const TensorView& to = wide.call().inputs[2];
  constexpr LatentF8Row kRow = {.codes = 200, .rest = 24};
  for (int64_t i = 0; i < from.shape[0] * from.shape[1]; ++i) {
    const int64_t page = i / from.shape[1], row = i % from.shape[1];
    const uint8_t* const bytes = from.Row<const uint8_t>(page) + row * kRow.bytes();
    const auto* const scales = reinterpret_cast<const float*>(bytes + kRow.scales_offset());
    const auto* const rest = reinterpret_cast<const uint16_t*>(bytes + kRow.rest_offset());
    uint16_t* const elements = to.Row<uint16_t>(page) + row * 224;
    for (int64_t d = 0; d < 200; ++d) {
      elements[d] = FloatToBf16(F8E4M3ToFloat(bytes[d]) * scales[d / kLatentGroup]);
    }
    std::copy(rest, rest + 24, elements + 200);
  }
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : conformance::SupportedKernels(
           LatentAttentionOp(), device::DetectCapabilities(), wide.call())) {
    EXPECT_TRUE(conformance::BitEqual(narrow.Run(*kernel, pool), wide.Run(*kernel, pool)))
        << kernel->name;
  }
}

// What rounding of latents to fp8 changes in results, beside bf16: 0.032 and 0.002 (decision 0139).
TEST(LatentAttention, F8IsOffByAFewHundredths) {
  const std::vector<conformance::PagedRequest> requests = {{500, 1}, {0, 60}};
  conformance::LatentOptions options{
      .heads = 4, .size = 512, .rope_size = 64, .dtype = DType::kF32, .bf16_elements = 64};
  device::ThreadPool pool({.num_threads = 2});
  const Kernel& kernel = conformance::ReferenceKernel(LatentAttentionOp());
  const auto run = [&](DType dtype) {
    options.dtype = dtype;
    return conformance::LatentCase(options, requests).Run(kernel, pool);
  };
  const std::vector<float> exact = run(DType::kF32);
  const double bf16 = std::sqrt(conformance::NormalizedSquaredError(run(DType::kBF16), exact));
  const double f8 = std::sqrt(conformance::NormalizedSquaredError(run(DType::kF8E4M3), exact));
  // A code has 3 bits of mantissa, bf16 has 7: 16 times the error.
  EXPECT_LT(bf16, 0.003);
  EXPECT_LT(f8, 0.04);
  EXPECT_GT(f8, 4 * bf16);
}

// A stored NaN makes the queries that see it NaN, and no others.
TEST(LatentAttention, NaNReachesLaterQueriesOnly) {
  conformance::LatentCase c({.heads = 4, .size = 20, .rope_size = 4, .dtype = DType::kF32},
                            {{.context = 3, .tokens = 4}});
  TensorView cache = c.call().inputs[2];
  cache.Row<float>(c.call().batch->block_table[0])[5 * 24] = std::nanf("");  // of position 5
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(LatentAttentionOp(), device::DetectCapabilities(), c.call())) {
    const std::vector<float> y = c.Run(*kernel, pool);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), i / 80 >= 2) << kernel->name << " " << i;
    }
  }
}

// A query that is not the last of two tokens does not see their row; the first one sees nothing.
TEST(LatentAttention, SeesRowsOfSeveralTokens) {
  conformance::LatentCase c({.heads = 2,
                             .size = 4,
                             .rope_size = 0,
                             .dtype = DType::kF32,
                             .tokens_of_row = 2,
                             .sums = true},
                            {{.context = 0, .tokens = 3}});
  const TensorView& cache = c.call().inputs[2];
  const float* const row = cache.Row<const float>(c.call().batch->block_table[0]);
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(LatentAttentionOp(), device::DetectCapabilities(), c.call())) {
    const std::vector<float> results = c.Run(*kernel, pool);
    for (int i = 0; i < 24; ++i) {
      EXPECT_FLOAT_EQ(results[i], i < 8 ? 0 : row[i % 4]) << kernel->name << " " << i;
    }
    EXPECT_EQ(results[24], -INFINITY) << kernel->name;
    EXPECT_TRUE(std::isfinite(results[26])) << kernel->name;
  }
}

TEST(LatentAttention, CheckNamesTheMismatch) {
  const BatchView batch{{}, {.block_size = 16}};
  const auto check = [&](DType dtype, std::initializer_list<int64_t> cache, double scale,
                         const BatchView* view) {
    const TensorView q = TensorView::Dense(nullptr, DType::kF32, {4, 3, 24});
    const TensorView inputs[] = {q, TensorView::Dense(nullptr, DType::kF32, {4, 3, 8}),
                                 TensorView::Dense(nullptr, dtype, cache)};
    Attributes attributes;
    if (scale != 0) attributes.Set("scale", scale);
    return LatentAttentionOp().check(
        {.inputs = inputs, .outputs = {&q, 1}, .attributes = &attributes, .batch = view});
  };
  EXPECT_TRUE(check(DType::kBF16, {5, 16, 32}, 0.1, &batch).ok());
  EXPECT_EQ(check(DType::kBF16, {5, 16, 24}, 0.1, &batch).message(),
            "latent_attention: rows of the cache must have 32 elements, got 24");
  EXPECT_TRUE(check(DType::kF8E4M3, {5, 16, 48}, 0.1, &batch).ok());
  EXPECT_EQ(check(DType::kF8E4M3, {5, 16, 32}, 0.1, &batch).message(),
            "latent_attention: rows of the cache must have 48 bytes, got 32");
  EXPECT_EQ(check(DType::kI8, {5, 16, 32}, 0.1, &batch).message(),
            "latent_attention: a latent cache must be f32, bf16 or fp8 (kv_cache_dtype), got i8");
  EXPECT_FALSE(check(DType::kBF16, {5, 32, 32}, 0.1, &batch).ok());
  EXPECT_FALSE(check(DType::kBF16, {5, 16, 32}, 0, &batch).ok());
  EXPECT_FALSE(check(DType::kBF16, {5, 16, 32}, 0.1, nullptr).ok());
}

}  // namespace
}  // namespace pagemill::ops
