// Two steps in flight: the next step is planned, and starts, before the result of the last one is
// in, so that a device never waits for the host. A request's next token is not known then; the
// plan has a placeholder for it (SchedulerOptions::decode_ahead), and the runner, which samples it,
// puts it in.
#include <cstdio>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "toy_runner.h"

namespace {

using pagemill::Internal;
using pagemill::Status;
using pagemill::scheduler::RequestEvent;
using pagemill::scheduler::Scheduler;
using pagemill::scheduler::SchedulerOptions;
using pagemill::step::StepPlan;
using pagemill::step::StepResult;

constexpr uint64_t kNumRequests = 10;
constexpr size_t kMaxStepsInFlight = 2;

Status Run() {
  SchedulerOptions options = toy::SmallOptions();
  options.decode_ahead = true;
  options.kv_cache.max_steps_in_flight = kMaxStepsInFlight;
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler, Scheduler::Create(options));
  toy::Runner runner(options);
  for (uint64_t id = 0; id < kNumRequests; ++id) {
    PAGEMILL_RETURN_IF_ERROR(scheduler->Add(toy::MakeRequest(id)));
  }

  toy::Answers answers;
  StepPlan plan;
  std::deque<StepResult> running;  // on a device: handles of steps that were started
  std::vector<RequestEvent> events;
  int num_overlapped = 0;
  while (scheduler->HasWork()) {
    // Start steps until enough are in flight. An empty plan: all requests wait for results.
    while (running.size() < kMaxStepsInFlight) {
      scheduler->Schedule(&plan);
      if (plan.empty()) break;
      num_overlapped += !running.empty();
      running.push_back(runner.Run(plan));
    }
    if (running.empty()) return Internal("there is work, but no plan");
    // Then report the oldest: results come in the order of the plans.
    PAGEMILL_RETURN_IF_ERROR(scheduler->Update(std::move(running.front()), &events));
    running.pop_front();
    toy::Append(events, &answers);
    events.clear();
  }

  std::printf("%d steps began before the result of the one before was in\n", num_overlapped);
  if (num_overlapped < 50) return Internal("steps hardly overlapped");
  return toy::CheckAnswers(runner, kNumRequests, answers);
}

}  // namespace

int main() { return toy::Report("steps_in_flight", Run()); }
