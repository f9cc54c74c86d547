// File: cuda/ops/testing/divided_attention.h
// Attention whose keys are divided into splits has bits that do not depend on how. Test code only.
//
//   CheckDivisions<LatentCase>(op, options, /*row=*/heads * size, {.prompt = 1100, .tokens = 40});
#ifndef PAGEMILL_CUDA_OPS_TESTING_DIVIDED_ATTENTION_H_
#define PAGEMILL_CUDA_OPS_TESTING_DIVIDED_ATTENTION_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/ops/paged_batch.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {

// The kernels of `op` that run `call` on this GPU and round activations: those that divide keys.
inline std::vector<const ops::Kernel*> RoundingKernels(const ops::OpDefinition& op,
                                                       const ops::OpCall& call) {
  std::vector<const ops::Kernel*> kernels =
      ops::conformance::SupportedKernels(op, GpuCapabilities(), call);
  std::erase_if(kernels, [](const ops::Kernel* kernel) {
    return kernel->activations == ops::Precision::kF32;
  });
  return kernels;
}

struct DividedPrompt {
  int32_t prompt;  // tokens of it
  int32_t tokens;  // the last of them, that one step computes
};

// Results of the first request, rows of `row` elements.
template <typename Case, typename Options>
std::vector<float> RowsOfFirst(const ops::Kernel& kernel, const Options& options, int64_t row,
                               std::vector<ops::conformance::PagedRequest> requests) {
  device::ThreadPool pool({.num_threads = 1});
  const int64_t rows = requests[0].tokens;
  Case c(options, std::move(requests));
  std::vector<float> y = c.Run(kernel, pool);
  y.resize(static_cast<size_t>(rows * row));
  return y;
}

// The last tokens of a prompt have the same bits in tiles that walk all splits, and merged from
// states of splits, alone and beside other requests.
template <typename Case, typename Options>
void CheckDivisions(const ops::OpDefinition& op, const Options& options, int64_t row,
                    const DividedPrompt& prompt) {
  using ops::conformance::PagedRequest;
  const auto behind = [&](int32_t tokens) {
    return PagedRequest{.context = prompt.prompt - tokens, .tokens = tokens};
  };
  const Case shape(options, {{.context = 0, .tokens = 1}});
  const std::vector<const ops::Kernel*> kernels = RoundingKernels(op, shape.call());
  if (kernels.empty()) GTEST_SKIP() << "no kernel rounds activations here";
  for (const ops::Kernel* kernel : kernels) {
    const std::vector<float> whole =
        RowsOfFirst<Case>(*kernel, options, row, {behind(prompt.tokens)});
    for (const int32_t tokens : {1, 3, 9}) {
      const std::span<const float> expected =
          std::span(whole).last(static_cast<size_t>(tokens * row));
      EXPECT_TRUE(ops::conformance::BitEqual(
          RowsOfFirst<Case>(*kernel, options, row, {behind(tokens)}), expected))
          << kernel->name << ", " << tokens << " tokens, rows of " << row;
      EXPECT_TRUE(ops::conformance::BitEqual(
          RowsOfFirst<Case>(*kernel, options, row,
                            {behind(tokens), {.context = 20, .tokens = 40}, {700, 2}}),
          expected))
          << kernel->name << ", " << tokens << " tokens beside others, rows of " << row;
    }
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TESTING_DIVIDED_ATTENTION_H_
