// What every kernel of `select_tokens` has to pass: exactly the choice of the reference for both
// cache types, odd sizes, batches of prompts, chunks and decoded tokens, many equal scores; the
// same with 1 and 3 threads and however a prompt is divided into steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/select_tokens/token_case.h"

namespace pagemill::ops {
namespace {

using conformance::PagedRequest;
using conformance::TokenCase;
using conformance::TokenOptions;

void CheckCase(const OpDefinition& op, const device::Capabilities& caps,
               const TokenOptions& options, const std::vector<PagedRequest>& requests) {
  TokenCase c(options, requests);
  ASSERT_TRUE(op.check(c.call()).ok()) << op.check(c.call()).ToString();
  device::ThreadPool one({.num_threads = 1});
  const std::vector<float> reference = c.Run(conformance::ReferenceKernel(op), one);
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, c.call())) {
    if (kernel->priority == 0) continue;
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      device::ThreadPool pool({.num_threads = threads});
      EXPECT_TRUE(conformance::BitEqual(c.Run(*kernel, pool), reference))
          << kernel->name << " with " << threads << " threads";
    }
  }
  conformance::CheckActTypes(
      {.op = op,
       .caps = caps,
       .call = c.call(),
       .act_inputs = options.rope_size > 0 ? 0b11u : 0b1u,
       .act_outputs = 0});
}

// A prompt of `length` tokens in one step, and in pieces among other requests.
void CheckPieces(const OpDefinition& op, const device::Capabilities& caps,
                 const TokenOptions& options, int32_t length, int32_t piece) {
  TokenCase whole(options, {{.context = 0, .tokens = length}}, {3});
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, whole.call())) {
    const std::vector<float> expected = whole.Run(*kernel, pool);
    for (int32_t done = 0; done < length; done += piece) {
      const int32_t tokens = std::min(piece, length - done);
      TokenCase part(options,
                     {{.context = 33, .tokens = 1}, {.context = done, .tokens = tokens}}, {8, 3});
      const std::vector<float> rows = part.Run(*kernel, pool);
      EXPECT_TRUE(std::equal(rows.begin() + options.choices, rows.end(),
                             expected.begin() + done * options.choices))
          << kernel->name << " from " << done;
    }
  }
}

}  // namespace

void CheckSelectTokensConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const std::vector<PagedRequest> mixed = {{0, 40}, {100, 1}, {0, 0}, {131, 7}, {7, 3}};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    CheckCase(op, caps, {.heads = 64, .size = 64, .rope_size = 64, .choices = 50, .dtype = dtype},
              {{130, 1}, {0, 3}});
    for (int64_t choices : {1, 7, 64, 500}) {
      CheckCase(op, caps, {.choices = choices, .dtype = dtype}, mixed);
    }
    CheckCase(op, caps, {.heads = 3, .size = 33, .rope_size = 7, .block_size = 5, .dtype = dtype},
              mixed);
    CheckCase(op, caps, {.heads = 1, .size = 1, .rope_size = 1, .block_size = 1, .dtype = dtype},
              mixed);
    CheckCase(op, caps, {.rope_size = 0, .dtype = dtype, .tokens_of_row = 4}, mixed);
    CheckCase(op, caps, {.choices = 3, .dtype = dtype, .tokens_of_row = 16}, mixed);
    CheckCase(op, caps, {.heads = 2, .size = 70, .rope_size = 16, .dtype = dtype}, {});
  }
  CheckCase(op, caps, {.heads = 2, .size = 4, .rope_size = 4, .choices = 3}, {{3000, 1}});
  CheckPieces(op, caps, {.heads = 6, .size = 40, .rope_size = 6}, 67, 13);
  CheckPieces(op, caps, {.heads = 6, .choices = 3, .tokens_of_row = 4}, 67, 13);
}

}  // namespace pagemill::ops
