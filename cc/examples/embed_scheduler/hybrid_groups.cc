// A hybrid model: layers with attention to everything, layers with a sliding window, and layers
// with a recurrent state. Each kind is a KV group with block tables of its own, over one pool of
// pages: windows give blocks back as they move on, and a state takes one page however long the
// context is. Prefixes are found if all three groups can continue from them.
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

// The requests are served one wave after the other, so that the second finds what the first left.
Status Serve(Scheduler* scheduler, toy::Runner* runner, toy::Answers* answers) {
  StepPlan plan;
  std::vector<RequestEvent> events;
  while (scheduler->HasWork()) {
    scheduler->Schedule(&plan);
    if (plan.empty()) return Internal("there is work, but no plan");
    // entry.new_block_ids has a list for each group, in the order of kv_cache.groups.
    PAGEMILL_RETURN_IF_ERROR(scheduler->Update(runner->Run(plan), &events));
    toy::Append(events, answers);
    events.clear();
  }
  return pagemill::OkStatus();
}

Status Run() {
  SchedulerOptions options = toy::SmallOptions();
  options.kv_cache.groups = {
      {.kind = "full"},
      {.kind = "sliding_window", .window_tokens = 8},
      {.kind = "state_space"},
  };
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler, Scheduler::Create(options));
  toy::Runner runner(options);
  toy::Answers first, second;
  for (toy::Answers* answers : {&first, &second}) {
    for (uint64_t id = 0; id < 6; ++id) {
      PAGEMILL_RETURN_IF_ERROR(scheduler->Add(toy::MakeRequest(id)));
    }
    PAGEMILL_RETURN_IF_ERROR(Serve(scheduler.get(), &runner, answers));
    PAGEMILL_RETURN_IF_ERROR(toy::CheckAnswers(runner, 6, *answers));
  }
  const auto stats = scheduler->stats();
  std::printf("%llu of %llu prompt tokens were found in all three groups\n",
              static_cast<unsigned long long>(stats.prefix_cache_hit_tokens),
              static_cast<unsigned long long>(stats.prefix_cache_query_tokens));
  if (stats.prefix_cache_hit_tokens == 0) return Internal("no prefix was found");
  return scheduler->CheckIntegrity();
}

}  // namespace

int main() { return toy::Report("hybrid_groups", Run()); }
