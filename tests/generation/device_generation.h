// File: tests/generation/device_generation.h
// Generates with a program on a device, the test device (cc/device/testing) if not given, through
// engine and native runner: with a given number of steps in flight, kernel by kernel or from
// graphs. Test code only.
//
//   const std::vector<step::Request> requests = GreedyRequests(program, /*seed=*/1);
//   PAGEMILL_ASSIGN_OR_RETURN(const Generated one, Generate(program, requests, {.steps_in_flight =
//   1})); PAGEMILL_ASSIGN_OR_RETURN(const Generated two, Generate(program, requests,
//   {.steps_in_flight = 2}));
//   ... one.outputs == two.outputs
#ifndef PAGEMILL_TESTS_GENERATION_DEVICE_GENERATION_H_
#define PAGEMILL_TESTS_GENERATION_DEVICE_GENERATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/engine_stats.h"
#include "cc/program/device/testing/device_parity.h"
#include "cc/program/program.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"
#include "cc/tensor/dtype.h"

namespace pagemill::testing {

struct DeviceRun {
  DType act = DType::kF32;
  DType kv_cache = DType::kBF16;
  int32_t steps_in_flight = 1;  // 0: the CPU, with one step in flight
  bool graphs = false;
  int32_t num_blocks = 48;  // pages of the KV cache
  bool drafts = false;      // from the request's own text
  const program::testing::DeviceUnderTest* device = nullptr;  // null: a test device
};

struct Generated {
  std::map<step::RequestId, std::vector<int32_t>> outputs;
  std::map<step::RequestId, std::vector<step::TokenLogprobs>> logprobs, prompt_logprobs;
  engine::EngineStats stats;
  int64_t num_steps = 0;
  int64_t num_overlapping_steps = 0;  // enqueued before the previous step was collected
  int64_t num_sampled_steps = 0;      // whose tokens the executor drew
  int64_t num_penalized_behind_drafts = 0;  // rows whose penalties it applied
  int64_t num_replays = 0;            // of graphs
};

// Prompts of several lengths, enough outputs that requests come and go, and for half of them a
// token that ends them. All are greedy.
std::vector<step::Request> GreedyRequests(uint64_t seed);

// Likewise, but two of three have a temperature, with every kind of limit on the drawn tokens, one
// of four has a token matcher, and some have penalties, biases, a least number of tokens, and log
// probabilities of their tokens or their prompt.
std::vector<step::Request> SampledRequests(uint64_t seed);

// Expects log probabilities of the same tokens, which differ by `bound` at most. With a bound of 0
// ranks and the most likely tokens are the same, too; else logits that are near to each other may
// change places.
void ExpectLogprobs(const Generated& got, const Generated& expected, float bound);

// Runs the requests concurrently. Returns the error of the first that fails. `text` is a program
// with logits.
StatusOr<Generated> Generate(const std::string& text, const std::vector<step::Request>& requests,
                             const DeviceRun& run);

}  // namespace pagemill::testing

#endif  // PAGEMILL_TESTS_GENERATION_DEVICE_GENERATION_H_
