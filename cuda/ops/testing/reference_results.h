// File: cuda/ops/testing/reference_results.h
// A kernel against the reference of its op, for operands that the conformance body does not have:
// rows that vector loads can read. Test code only.
//
//   ExpectReferenceResults(op, call, y, /*tolerance=*/1e-5);
#ifndef PAGEMILL_CUDA_OPS_TESTING_REFERENCE_RESULTS_H_
#define PAGEMILL_CUDA_OPS_TESTING_REFERENCE_RESULTS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// Runs the first kernel of `op`, whose output is `y`. Results differ from those of the reference by
// `tolerance` at most, relative to their magnitude and a thousandth.
inline void ExpectReferenceResults(const ops::OpDefinition& op, const ops::OpCall& call,
                                   ops::conformance::TestTensor& y, double tolerance) {
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  const auto run = [&](const ops::Kernel& kernel) {
    y.Poison();
    ops::conformance::RunKernel(kernel, call, pool);
    EXPECT_TRUE(y.GuardsIntact());
    return y.ToFloat();
  };
  const std::vector<float> expected = run(ops::conformance::ReferenceKernel(op));
  const std::vector<float> found = run(op.kernels.front());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_LE(std::abs(found[i] - expected[i]), tolerance * (1e-3 + std::abs(expected[i]))) << i;
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TESTING_REFERENCE_RESULTS_H_
