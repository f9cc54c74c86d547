// KV tiers: what the pool has no room for stays in host memory. The scheduler and its connector
// decide what is copied and when; the host copies. docs/kv_tiers.md has the reasons.
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "pagemill/kv_cache/tiers/tiered_connector.h"
#include "toy_runner.h"

namespace {

using pagemill::Internal;
using pagemill::Status;
using pagemill::kv_cache::KvTransfer;
using pagemill::kv_cache::KvTransferResult;
using pagemill::kv_cache::TieredConnector;
using pagemill::scheduler::RequestEvent;
using pagemill::scheduler::Scheduler;
using pagemill::scheduler::SchedulerOptions;
using pagemill::step::StepPlan;

constexpr uint64_t kNumRequests = 8;

// The tier's memory: slot -> content. A real host copies asynchronously, beside the steps, and
// reports each transfer when it is done (TransferWorker in kv_cache/transfer.h).
class HostMemory {
 public:
  explicit HostMemory(toy::Runner* runner) : runner_(runner) {}

  KvTransferResult Copy(const KvTransfer& transfer) {
    KvTransferResult result;
    result.id = transfer.id;
    for (size_t i = 0; i < transfer.blocks.size(); ++i) {
      const std::span<int32_t> page = runner_->Page(transfer.blocks[i].block);
      std::vector<int32_t>& slot = slots_[transfer.medium_slots[i]];
      if (transfer.direction == KvTransfer::Direction::kStore) {
        slot.assign(page.begin(), page.end());
      } else {
        std::copy(slot.begin(), slot.end(), page.begin());
      }
      ++result.num_blocks_done;
    }
    return result;
  }

 private:
  toy::Runner* const runner_;
  std::map<int64_t, std::vector<int32_t>> slots_;
};

void CopyAll(Scheduler* scheduler, HostMemory* memory) {
  std::vector<KvTransfer> transfers;
  std::vector<KvTransferResult> results;
  scheduler->TakeTransfers(&transfers);
  for (const KvTransfer& transfer : transfers) results.push_back(memory->Copy(transfer));
  scheduler->FinishTransfers(results);
}

// One request after the other. After kNumRequests others, a prompt's blocks are gone from the pool.
Status Serve(Scheduler* scheduler, toy::Runner* runner, HostMemory* memory, toy::Answers* answers) {
  StepPlan plan;
  std::vector<RequestEvent> events;
  for (uint64_t id = 0; id < kNumRequests; ++id) {
    pagemill::step::Request request = toy::MakeRequest(id);
    request.cache_salt = std::to_string(id);  // shares nothing with the others
    PAGEMILL_RETURN_IF_ERROR(scheduler->Add(std::move(request)));
    while (scheduler->HasWork()) {
      scheduler->Schedule(&plan);  // empty while the request waits for its load
      CopyAll(scheduler, memory);
      if (plan.empty()) continue;
      PAGEMILL_RETURN_IF_ERROR(scheduler->Update(runner->Run(plan), &events));
      CopyAll(scheduler, memory);
      toy::Append(events, answers);
      events.clear();
    }
  }
  return toy::CheckAnswers(*runner, kNumRequests, *answers);
}

Status Run() {
  SchedulerOptions options = toy::SmallOptions();
  options.kv_cache.num_blocks = 25;  // two requests of up to 12 blocks
  TieredConnector::Options tiers;
  tiers.host_blocks = 200;
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<TieredConnector> connector,
                            TieredConnector::Create(tiers));
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler, Scheduler::Create(options));
  PAGEMILL_RETURN_IF_ERROR(scheduler->SetConnector(connector.get()));
  toy::Runner runner(options);
  HostMemory memory(&runner);
  toy::Answers first, second;
  PAGEMILL_RETURN_IF_ERROR(Serve(scheduler.get(), &runner, &memory, &first));
  PAGEMILL_RETURN_IF_ERROR(Serve(scheduler.get(), &runner, &memory, &second));
  const auto stats = scheduler->stats();
  std::printf("%llu prompt tokens came from host memory instead of the model\n",
              static_cast<unsigned long long>(stats.kv_loaded_tokens));
  return stats.kv_loaded_tokens > 100 ? pagemill::OkStatus() : Internal("too little was loaded");
}

}  // namespace

int main() { return toy::Report("kv_tiers", Run()); }
