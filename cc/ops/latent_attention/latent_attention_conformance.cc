// What every kernel of `latent_attention` has to pass: results close to the reference for all
// cache types, odd sizes, batches of prompts, chunks and decoded tokens; and the same bits with 1
// to 3 threads and however a prompt is divided into steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_attention/latent_case.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

using conformance::LatentCase;
using conformance::LatentOptions;
using conformance::PagedRequest;

// The contract's bound with |c| <= sqrt(3), in fp8 1.75, and scores of variance 1, below 6.
constexpr double kLargest = 1.75;
constexpr conformance::Tolerance kTolerance{.abs = 4e-6 * (1 + 6) * kLargest};
// Results in bf16 may be those beside each other.
constexpr conformance::Tolerance kToleranceInBf16{.abs = kTolerance.abs, .rel = 1.0 / 128};
constexpr conformance::Tolerance kRoundedTolerance{
    .abs = kTolerance.abs + kPagedAttentionRounding * kLargest, .rel = 1.0 / 128};

bool Rounds(const Kernel& kernel) { return kernel.activations != Precision::kF32; }

conformance::Tolerance ToleranceOf(const Kernel& kernel, DType act) {
  if (Rounds(kernel)) return kRoundedTolerance;
  return act == DType::kF32 ? kTolerance : kToleranceInBf16;
}

void CheckCase(const OpDefinition& op, const device::Capabilities& caps,
               const LatentOptions& options, const std::vector<PagedRequest>& requests) {
  LatentCase c(options, requests);
  ASSERT_TRUE(op.check(c.call()).ok()) << op.check(c.call()).ToString();
  device::ThreadPool one({.num_threads = 1});
  const std::vector<float> reference = c.Run(conformance::ReferenceKernel(op), one);
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, c.call())) {
    if (kernel->priority == 0) continue;  // the reference, which is slow on emulated CPUs
    const std::vector<float> expected = c.Run(*kernel, one);
    EXPECT_TRUE(conformance::AllClose(expected, reference, ToleranceOf(*kernel, options.act)))
        << kernel->name << " " << options.heads << " heads of " << options.size;
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      if (threads == 1) continue;
      device::ThreadPool pool({.num_threads = threads});
      EXPECT_TRUE(conformance::BitEqual(c.Run(*kernel, pool), expected))
          << kernel->name << " with " << threads << " threads";
    }
  }
  if (options.act != DType::kF32) return;
  // Kernels that round have another bound, and calls of their own.
  std::vector<Kernel> exact_kernels;
  std::ranges::copy_if(op.kernels, std::back_inserter(exact_kernels), std::not_fn(Rounds));
  OpDefinition exact = op;
  exact.kernels = exact_kernels;
  const uint32_t inputs = options.rope_size > 0 ? 0b11 : 0b1;
  conformance::CheckActTypes({.op = exact,
                              .caps = caps,
                              .call = c.call(),
                              .act_inputs = inputs,
                              .act_outputs = 0b1,
                              .tolerance = kTolerance});
}

// Request 3 runs its prompt of `length` tokens alone in one step, then in pieces among other
// requests.
void CheckPieces(const OpDefinition& op, const device::Capabilities& caps,
                 const LatentOptions& options, int32_t length, int32_t piece) {
  LatentCase whole(options, {{.context = 0, .tokens = length}}, {3});
  const int64_t width = options.heads * options.size;
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, whole.call())) {
    const std::vector<float> expected = whole.Run(*kernel, pool);
    for (int32_t done = 0; done < length; done += piece) {
      const int32_t tokens = std::min(piece, length - done);
      LatentCase part(options,
                      {{.context = 33, .tokens = 1},
                       {.context = done, .tokens = tokens},
                       {.context = 2, .tokens = 9}},
                      {8, 3, 9});
      const std::vector<float> y = part.Run(*kernel, pool);
      const std::vector<float> rows(y.begin() + width, y.begin() + (1 + tokens) * width);
      const auto first = expected.begin() + done * width;
      EXPECT_TRUE(conformance::BitEqual(rows, {first, first + tokens * width}))
          << kernel->name << " from " << done << " by " << piece;
    }
  }
}

// Rows that are one group of codes or several, whole or not, with and without elements in bf16.
void CheckF8Caches(const OpDefinition& op, const device::Capabilities& caps,
                   const std::vector<PagedRequest>& mixed) {
  constexpr DType kF8 = DType::kF8E4M3;
  for (LatentOptions options : {LatentOptions{.heads = 5, .size = 48, .rope_size = 16},
                                LatentOptions{.heads = 3, .size = 144, .rope_size = 32}}) {
    options.dtype = kF8;
    options.bf16_elements = options.rope_size;
    options.act = DType::kBF16;
    CheckCase(op, caps, options, mixed);
  }
  const std::vector<PagedRequest> few = {{130, 1}, {0, 3}};
  for (const DType act : {DType::kF32, DType::kBF16}) {
    CheckCase(
        op, caps,
        {.heads = 5, .size = 512, .rope_size = 64, .dtype = kF8, .bf16_elements = 64, .act = act},
        few);
  }
  CheckCase(
      op, caps,
      {.heads = 3, .size = 33, .rope_size = 7, .block_size = 5, .dtype = kF8, .bf16_elements = 7},
      mixed);
  CheckCase(op, caps, {.heads = 2, .size = 300, .rope_size = 5, .dtype = kF8}, few);
  CheckCase(op, caps, {.heads = 2, .dtype = kF8, .bf16_elements = 52}, few);
  for (const int32_t choices : {7, 500}) {
    CheckCase(op, caps, {.dtype = kF8, .bf16_elements = 12, .choices = choices}, mixed);
  }
  // Elements in bf16 may be part of the values.
  CheckCase(
      op, caps,
      {.heads = 3, .rope_size = 0, .dtype = kF8, .bf16_elements = 9, .window = 40, .sums = true},
      mixed);
  CheckCase(op, caps,
            {.heads = 3,
             .dtype = kF8,
             .bf16_elements = 12,
             .choices = 3,
             .tokens_of_row = 2,
             .sums = true},
            mixed);
}

}  // namespace

void CheckLatentAttentionConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const std::vector<PagedRequest> mixed = {{0, 40}, {100, 1}, {0, 0}, {131, 7}, {7, 3}};
  // For kernels that round.
  for (LatentOptions options : {LatentOptions{.heads = 5, .size = 48, .rope_size = 16},
                                LatentOptions{.heads = 37, .size = 16, .rope_size = 16},
                                LatentOptions{.heads = 3, .size = 144, .rope_size = 32}}) {
    options.act = DType::kBF16;
    CheckCase(op, caps, options, mixed);
  }
  CheckCase(op, caps,
            {.heads = 5, .size = 512, .rope_size = 64, .act = DType::kBF16}, {{600, 1}, {0, 5}});
  CheckF8Caches(op, caps, mixed);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    CheckCase(op, caps, {.heads = 5, .size = 512, .rope_size = 64, .dtype = dtype},
              {{130, 1}, {0, 3}});
    CheckCase(op, caps, {.heads = 5, .size = 40, .rope_size = 12, .dtype = dtype}, mixed);
    CheckCase(op, caps, {.heads = 3, .size = 33, .rope_size = 7, .block_size = 5, .dtype = dtype},
              mixed);
    CheckCase(op, caps, {.heads = 37, .size = 1, .rope_size = 1, .block_size = 1, .dtype = dtype},
              mixed);
    CheckCase(op, caps, {.heads = 2, .size = 70, .rope_size = 16, .dtype = dtype}, {});
    for (int32_t choices : {1, 7, 40, 500}) {
      CheckCase(op, caps,
                {.heads = 5, .size = 40, .rope_size = 12, .dtype = dtype, .choices = choices},
                mixed);
    }
    CheckCase(op, caps, {.rope_size = 0, .dtype = dtype, .sums = true}, mixed);
    for (int32_t window : {1, 7, 40, 500}) {
      CheckCase(
          op, caps,
          {.heads = 3, .rope_size = 0, .dtype = dtype, .window = window, .sums = true}, mixed);
    }
    for (int32_t tokens : {2, 16}) {
      for (int32_t choices : {0, 3}) {
        CheckCase(op, caps,
                  {.heads = 3,
                   .dtype = dtype,
                   .choices = choices,
                   .tokens_of_row = tokens,
                   .sums = true},
                  mixed);
      }
    }
  }
}

void CheckLatentAttentionInvariance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckPieces(op, caps, {.heads = 6, .size = 40, .rope_size = 6}, 67, 1);
  CheckPieces(op, caps, {.heads = 3, .size = 33, .rope_size = 4, .dtype = DType::kF32}, 70, 13);
  CheckPieces(op, caps, {.heads = 40, .size = 16, .rope_size = 8, .block_size = 32}, 70, 33);
  CheckPieces(op, caps, {.heads = 6, .size = 40, .rope_size = 6, .choices = 9}, 67, 13);
  CheckPieces(op, caps, {.heads = 3, .rope_size = 0, .window = 19}, 167, 13);
  CheckPieces(op, caps, {.heads = 3, .tokens_of_row = 4}, 67, 13);
  CheckPieces(op, caps, {.heads = 5, .size = 32, .rope_size = 16, .act = DType::kBF16}, 67, 13);
  CheckPieces(op, caps,
              {.heads = 5,
               .size = 32,
               .rope_size = 16,
               .dtype = DType::kF8E4M3,
               .bf16_elements = 16,
               .act = DType::kBF16},
              67, 13);
  CheckPieces(op, caps, {.heads = 3, .rope_size = 0, .dtype = DType::kF8E4M3, .window = 19}, 167,
              13);
}

}  // namespace pagemill::ops
