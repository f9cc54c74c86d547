// Pagemill's scheduler with a runner of your own: no engine, thread or model; the host runs the
// loop itself. toy_runner.h is the runner. Here the KV cache is too small for the requests, so that
// some are preempted and computed again.
#include <cstdio>
#include <memory>
#include <vector>

#include "toy_runner.h"

namespace {

using pagemill::Internal;
using pagemill::Status;
using pagemill::scheduler::RequestEvent;
using pagemill::scheduler::Scheduler;
using pagemill::scheduler::SchedulerOptions;
using pagemill::step::StepPlan;

constexpr uint64_t kNumRequests = 12;

Status Run() {
  SchedulerOptions options = toy::SmallOptions();
  options.kv_cache.num_blocks = 40;  // of 4 tokens: too few for 6 whole requests
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler, Scheduler::Create(options));
  toy::Runner runner(options);
  for (uint64_t id = 0; id < kNumRequests; ++id) {
    PAGEMILL_RETURN_IF_ERROR(scheduler->Add(toy::MakeRequest(id)));
  }
  // A refusal is a value with a message; it changes nothing.
  std::printf("refused: %s\n", scheduler->Add(toy::MakeRequest(70)).message().c_str());

  toy::Answers answers;
  StepPlan plan;                     // reused from step to step
  std::vector<RequestEvent> events;  // of one step
  int num_steps = 0;
  while (scheduler->HasWork()) {
    scheduler->Schedule(&plan);
    if (plan.empty()) return Internal("there is work, but no plan");
    PAGEMILL_RETURN_IF_ERROR(scheduler->Update(runner.Run(plan), &events));
    toy::Append(events, &answers);
    events.clear();
    ++num_steps;
  }

  const auto stats = scheduler->stats();
  std::printf("%zu requests in %d steps, %llu preemptions, %llu of %llu prompt tokens shared\n",
              answers.size(), num_steps, static_cast<unsigned long long>(stats.num_preemptions),
              static_cast<unsigned long long>(stats.prefix_cache_hit_tokens),
              static_cast<unsigned long long>(stats.prefix_cache_query_tokens));
  if (stats.kv_blocks_used != 0) return Internal("blocks are still in use");
  if (stats.num_preemptions == 0) return Internal("nothing was preempted");
  return toy::CheckAnswers(runner, kNumRequests, answers);
}

}  // namespace

int main() { return toy::Report("embed_scheduler", Run()); }
