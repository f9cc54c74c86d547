// File: cc/ops/kv_write/token_steps.h
// Steps for the benchmarks of ops that write keys and values: a number of tokens, of one prompt or
// one per decoding request.
//
//   void Run(benchmark::State& state, const std::string& kernel) {
//     const conformance::PagedBatch batch = TokenStep(state);
//     BenchmarkCall call(KvWriteOp(), {kernel, ThreadsOf(state)});
//     ...
//   }
//   const bool kRegistered = RegisterForTokenSteps("KvWrite", Run);
//
// Benchmark code only.
#ifndef PAGEMILL_CC_OPS_KV_WRITE_TOKEN_STEPS_H_
#define PAGEMILL_CC_OPS_KV_WRITE_TOKEN_STEPS_H_

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {

inline int32_t TokensOf(const benchmark::State& state) {
  return static_cast<int32_t>(state.range(0));
}

inline int32_t ThreadsOf(const benchmark::State& state) {
  return static_cast<int32_t>(state.range(1));
}

inline conformance::PagedBatch TokenStep(const benchmark::State& state) {
  const int32_t tokens = TokensOf(state);
  std::vector<conformance::PagedRequest> requests = {{0, tokens}};
  if (state.range(2) != 0) requests.assign(tokens, {.context = 37, .tokens = 1});
  return conformance::PagedBatch(16, requests, conformance::Random(1));
}

inline bool RegisterForTokenSteps(const std::string& name,
                                  void (*body)(benchmark::State& state,
                                               const std::string& kernel)) {
  for (auto* b : RegisterForKernels(name, body)) {
    b->ArgNames({"tokens", "threads", "decode"})->ArgsProduct({{1, 32, 1024}, {1, 2}, {0, 1}});
  }
  return true;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_TOKEN_STEPS_H_
