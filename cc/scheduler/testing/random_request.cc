#include "cc/scheduler/testing/random_request.h"

#include <string>
#include <vector>

namespace pagemill::scheduler {
namespace {

// True once in `n` times.
bool OneIn(int32_t n, std::mt19937* random) { return Pick(1, n, random) == 1; }

std::vector<int32_t> MakePrompt(const SchedulerOptions& options, std::mt19937* random) {
  const int32_t vocab_size = options.vocab_size;
  const int32_t family = Pick(0, 3, random);
  const bool patchwork = OneIn(3, random);
  const int32_t size = Pick(1, OneIn(6, random) ? options.max_model_len : 22, random);
  const int32_t common = Pick(0, size, random);
  std::vector<int32_t> prompt;
  int32_t patch = 0;
  for (int32_t i = 0; i < size; ++i) {
    const int32_t offset = i % options.kv_cache.block_size;
    if (offset == 0) patch = Pick(0, 2, random);
    prompt.push_back(patchwork    ? patch * 9 + offset
                     : i < common ? (family * 17 + i * 5) % vocab_size
                                  : Pick(0, vocab_size - 1, random));
  }
  return prompt;
}

void MakeSampling(const SimulationSetup& setup, std::mt19937* random, step::Request* request) {
  step::SamplingParams& p = request->sampling;
  p.max_tokens = Pick(1, OneIn(5, random) ? 60 : 12, random);
  p.min_tokens = OneIn(4, random) ? Pick(0, p.max_tokens, random) : 0;
  p.ignore_eos = OneIn(4, random);
  p.eos_token_ids = {7, 11};
  if (OneIn(2, random)) p.stop_token_ids = {Pick(0, setup.options.vocab_size - 1, random)};
  if (OneIn(5, random)) p.logprobs = Pick(0, 2, random);
  const uint64_t id = request->id.value();
  if (setup.medium == SimulatedMedium::kNone && id % 4 == 0) {
    p.repetition_max_pattern = static_cast<int32_t>(1 + id / 4 % 3);
    p.repetition_min_count = 2;
  }
  if (request->streaming_input || !OneIn(7, random)) return;
  p.prompt_logprobs = Pick(0, 2, random);
  if (OneIn(2, random)) p.max_tokens = p.min_tokens = 0;
}

// Of few contents, each of its own size.
void AddMedia(const SchedulerOptions& options, std::mt19937* random, step::Request* request) {
  const auto size = static_cast<int32_t>(request->prompt_token_ids.size());
  int32_t at = Pick(0, 12, random);
  while (!OneIn(3, random)) {
    const int32_t content = Pick(1, options.max_encoder_tokens, random);
    if (at + content > size) return;
    request->media.push_back({"item " + std::to_string(content), at, content});
    at += content + Pick(0, 6, random);
  }
}

}  // namespace

step::Request MakeRandomRequest(const SimulationSetup& setup, step::RequestId id, int64_t now_us,
                                std::mt19937* random) {
  step::Request request;
  request.id = id;
  request.prompt_token_ids = MakePrompt(setup.options, random);
  if (OneIn(6, random)) request.cache_salt = OneIn(2, random) ? "a" : "b";
  request.skip_reading_prefix_cache = OneIn(10, random);
  request.tenant = std::string(1, static_cast<char>('a' + Pick(0, 2, random)));
  if (setup.options.policy == "priority") request.priority = Pick(0, 2, random);
  if (setup.options.max_encoder_tokens > 0) AddMedia(setup.options, random, &request);
  const int32_t num_adapters = setup.options.max_adapters;
  if (num_adapters > 0) {
    const int adapter = Pick(0, 2 * num_adapters, random);
    request.adapter = step::AdapterId(static_cast<uint64_t>(adapter));
  }
  if (setup.controls) {
    request.starts_held = OneIn(10, random);
    if (OneIn(10, random)) request.start_deadline_us = now_us + Pick(0, 300, random);
    if (OneIn(10, random)) request.deadline_us = now_us + Pick(0, 1500, random);
  }
  if (setup.options.pooling || (setup.options.token_rows && id.value() % 3 == 0)) {
    request.pooling.emplace();
    return request;
  }
  request.streaming_input = setup.streams && setup.options.chunked_prefill && OneIn(5, random);
  MakeSampling(setup, random, &request);
  request.return_routed_experts = setup.options.routed_experts_per_token > 0 && id.value() % 2 == 0;
  return request;
}

}  // namespace pagemill::scheduler
