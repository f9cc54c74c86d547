// A recorded run replays to the same plans, from text alone and on every machine.
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/scheduler/scheduler.h"
#include "cc/step/fake_model.h"
#include "cc/step/text_codec.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using step::Request;
using step::RequestId;

SchedulerOptions Options() {
  SchedulerOptions options;
  options.max_num_tokens = 24;
  options.max_num_seqs = 6;
  options.max_num_logits_rows = 12;
  options.max_model_len = 60;
  options.vocab_size = 61;
  options.kv_cache.num_blocks = 20;
  options.kv_cache.block_size = 4;
  return options;
}

Request RandomRequest(uint64_t id, std::mt19937* random) {
  Request request;
  request.id = RequestId(id);
  const uint32_t size = 1 + (*random)() % 25, common = (*random)() % size;
  for (uint32_t i = 0; i < size; ++i) {
    request.prompt_token_ids.push_back(
        static_cast<int32_t>((i < common ? i * 5 : (*random)()) % 61));
  }
  request.sampling.max_tokens = static_cast<int32_t>(1 + (*random)() % 20);
  request.sampling.eos_token_ids = {7};
  request.sampling.temperature = 0.25f * static_cast<float>((*random)() % 4);
  if ((*random)() % 4 == 0) request.sampling.logprobs = 1;
  if ((*random)() % 8 == 0) request.sampling.prompt_logprobs = 0;
  if ((*random)() % 6 == 0) request.cache_salt = "s";
  return request;
}

// One line per call (a result has several): what went in, and the plans that came out.
std::string Record(int num_operations) {
  auto scheduler = std::move(*Scheduler::Create(Options()));
  step::FakeModel model({.num_blocks = 20,
                         .block_size = 4,
                         .max_num_seqs = 6,
                         .vocab_size = 61,
                         .max_num_tokens = 24,
                         .max_num_logits_rows = 12});
  std::mt19937 random(99);
  std::string trace;
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  uint64_t next_id = 0;
  for (int i = 0; i < num_operations; ++i) {
    const uint32_t dice = random() % 10;
    if (dice < 3) {
      const Request request = RandomRequest(next_id++, &random);
      trace += step::ToText(request) + "\n";
      (void)scheduler->Add(request);  // refusals replay too
    } else if (dice < 4 && next_id > 0) {
      const uint64_t id = random() % next_id;
      trace += "abort " + std::to_string(id) + "\n";
      scheduler->Abort(RequestId(id), &events);
    } else {
      scheduler->Schedule(&plan);
      if (plan.empty()) continue;
      StatusOr<step::StepResult> result = model.Run(plan);
      PAGEMILL_CHECK(result.ok());
      trace += step::ToText(plan) + step::ToText(*result) + ".\n";
      EXPECT_TRUE(scheduler->Update(std::move(*result), &events).ok());
    }
  }
  PAGEMILL_CHECK(scheduler->stats().num_preemptions > 10);
  PAGEMILL_CHECK(scheduler->stats().prefix_cache_hit_tokens > 100);
  return trace;
}

std::string_view CutLine(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return line;
}

// Makes the calls of a trace; gives the number of plans that were as recorded, -1 after one that
// was not.
int Replay(std::string_view trace) {
  auto scheduler = std::move(*Scheduler::Create(Options()));
  step::StepPlan plan;
  std::vector<RequestEvent> events;
  int num_plans = 0;
  while (!trace.empty()) {
    if (trace.starts_with("request")) {
      (void)scheduler->Add(std::move(*step::ParseRequest(CutLine(&trace))));
    } else if (trace.starts_with("abort")) {
      const std::string line(CutLine(&trace));
      scheduler->Abort(RequestId(std::stoull(line.substr(6))), &events);
    } else {
      scheduler->Schedule(&plan);
      const std::string text = step::ToText(plan);
      if (!trace.starts_with(text)) return -1;
      trace.remove_prefix(text.size());
      const size_t end = trace.find("\n.\n") + 1;
      step::StepResult result = *step::ParseStepResult(trace.substr(0, end));
      EXPECT_TRUE(scheduler->Update(std::move(result), &events).ok());
      trace.remove_prefix(end + 2);
      ++num_plans;
    }
  }
  return num_plans;
}

TEST(SchedulerTrace, ReplaysToTheSamePlans) {
  const std::string trace = Record(3000);
  EXPECT_GT(Replay(trace), 1000);
  // A trace that differs in one token of one request gives other plans.
  std::string changed = trace;
  const size_t at = changed.find("prompt_token_ids=") + 17;
  changed[at] = changed[at] == '1' ? '2' : '1';
  EXPECT_EQ(Replay(changed), -1);
}

TEST(SchedulerTrace, IsTheSameOnEveryMachine) {
  const std::string trace = Record(3000);
  // A change of what the scheduler decides, or of how it is written, updates this digest; the test
  // is that all architectures agree on it.
  EXPECT_EQ(Xxh3_128(trace.data(), trace.size()).low, 7858010332740424392u);
}

}  // namespace
}  // namespace pagemill::scheduler
