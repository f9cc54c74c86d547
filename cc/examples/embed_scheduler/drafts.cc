// Speculation: the runner proposes draft tokens with each result (from an n-gram, a small model, or
// heads of the model). The next plan has them behind the request's token; one pass over the model
// verifies all of them, and the result has those that were right and one sampled token.
#include <cstdio>
#include <memory>
#include <vector>

#include "toy_runner.h"

namespace {

using pagemill::Internal;
using pagemill::Status;
using pagemill::StatusOr;
using pagemill::scheduler::RequestEvent;
using pagemill::scheduler::Scheduler;
using pagemill::scheduler::SchedulerOptions;
using pagemill::step::StepPlan;

constexpr uint64_t kNumRequests = 6;

// Returns how many steps it takes with so many drafts.
StatusOr<int> NumSteps(int32_t num_drafts) {
  SchedulerOptions options = toy::SmallOptions();
  options.max_draft_tokens = num_drafts;
  options.max_num_logits_rows = 6 * (num_drafts + 1);  // a row for each draft, and one behind them
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler, Scheduler::Create(options));
  toy::Runner runner(options, num_drafts);
  for (uint64_t id = 0; id < kNumRequests; ++id) {
    PAGEMILL_RETURN_IF_ERROR(scheduler->Add(toy::MakeRequest(id)));
  }
  toy::Answers answers;
  StepPlan plan;
  std::vector<RequestEvent> events;
  int num_steps = 0;
  for (; scheduler->HasWork(); ++num_steps) {
    scheduler->Schedule(&plan);
    if (plan.empty()) return Internal("there is work, but no plan");
    // entry.draft_token_ids are run after entry.token_ids. Blocks of drafts that are rejected are
    // used by the tokens that come instead.
    PAGEMILL_RETURN_IF_ERROR(scheduler->Update(runner.Run(plan), &events));
    toy::Append(events, &answers);
    events.clear();
  }
  const auto stats = scheduler->stats();
  std::printf("%d steps; %llu of %llu drafts accepted\n", num_steps,
              static_cast<unsigned long long>(stats.accepted_draft_tokens),
              static_cast<unsigned long long>(stats.draft_tokens));
  PAGEMILL_RETURN_IF_ERROR(toy::CheckAnswers(runner, kNumRequests, answers));
  return num_steps;
}

Status Run() {
  PAGEMILL_ASSIGN_OR_RETURN(const int without, NumSteps(0));
  PAGEMILL_ASSIGN_OR_RETURN(const int with, NumSteps(3));
  return 3 * with < 2 * without ? pagemill::OkStatus() : Internal("drafts saved too few steps");
}

}  // namespace

int main() { return toy::Report("drafts", Run()); }
