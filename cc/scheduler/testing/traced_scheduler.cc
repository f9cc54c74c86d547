#include "cc/scheduler/testing/traced_scheduler.h"

#include <cstdint>
#include <sstream>
#include <utility>

#include "cc/kv_cache/connectors/file.h"
#include "cc/kv_cache/tiers/tiered_connector.h"
#include "cc/step/text_codec.h"

namespace pagemill::scheduler {
namespace {

using step::RequestId;

std::unique_ptr<kv_cache::KvConnector> MakeConnector(TracedConnector kind) {
  if (kind == TracedConnector::kFiles) {
    return std::make_unique<kv_cache::FileConnector>(kv_cache::FileConnector::Options{
        .max_blocks_in_flight = 8, .max_known_blocks = 64, .max_probe_blocks = 6});
  }
  if (kind == TracedConnector::kNone) return nullptr;
  return std::move(*kv_cache::TieredConnector::Create(
      {.host_blocks = 12, .disk_blocks = 24, .policy = "arc", .max_blocks_in_flight = 8}));
}

std::string ToText(const Status& status) {
  return "status " + std::to_string(static_cast<int32_t>(status.code())) + "\n";
}

// Words and numbers of a line. Aborts the process where the next one is missing.
class Words {
 public:
  explicit Words(std::string_view line) : stream_(std::string(line)) {}

  std::string Word() { return Take<std::string>(); }
  int64_t Number() { return Take<int64_t>(); }
  RequestId Id() { return RequestId(static_cast<uint64_t>(Number())); }
  std::vector<int32_t> Rest() {
    std::vector<int32_t> numbers;
    for (int32_t number; stream_ >> number;) numbers.push_back(number);
    return numbers;
  }

 private:
  template <typename T>
  T Take() {
    T value;
    PAGEMILL_CHECK(static_cast<bool>(stream_ >> value));
    return value;
  }

  std::istringstream stream_;
};

}  // namespace

TracedScheduler::TracedScheduler(const SchedulerOptions& options, TracedConnector connector)
    : connector_(MakeConnector(connector)), scheduler_(std::move(*Scheduler::Create(options))) {
  PAGEMILL_CHECK(connector_ == nullptr || scheduler_->SetConnector(connector_.get()).ok());
}

std::string TracedScheduler::Call(std::string_view text) {
  events_.clear();
  transfers_.clear();
  std::string outcome = Dispatch(text);
  scheduler_->TakeTransfers(&transfers_);
  PAGEMILL_CHECK(scheduler_->CheckIntegrity().ok());
  return outcome + EventsToText() + TransfersToText();
}

std::string TracedScheduler::Dispatch(std::string_view text) {
  Words words(text);
  const std::string call = words.Word();
  if (call == "request") {
    return ToText(scheduler_->Add(std::move(*step::ParseRequest(text.substr(0, text.size() - 1)))));
  }
  if (call == "schedule") {
    const std::vector<int32_t> budget = words.Rest();
    scheduler_->Schedule(&plan_, budget.empty() ? StepBudget() : StepBudget{budget[0]});
    return step::ToText(plan_);
  }
  if (call == "result") {
    scheduler_->Update(std::move(*step::ParseStepResult(text)), &events_);
  } else if (call == "abort") {
    scheduler_->Abort(words.Id(), &events_);
  } else if (call == "release") {
    scheduler_->Release(words.Id());
  } else if (call == "extend") {
    const RequestId id = words.Id();
    const auto part = static_cast<InputPart>(words.Number());
    return ToText(scheduler_->Extend(id, {words.Rest(), {}, part}));
  } else if (call == "expire") {
    scheduler_->Expire(words.Number(), &events_);
  } else if (call == "pause") {
    scheduler_->Pause(static_cast<PauseMode>(words.Number()), &events_);
  } else if (call == "resume") {
    scheduler_->Resume();
  } else if (call == "reset") {
    return scheduler_->ResetPrefixCache(words.Number() != 0) ? "done\n" : "refused\n";
  } else if (call == "abandon") {
    scheduler_->AbandonTransfer(kv_cache::TransferId(static_cast<uint64_t>(words.Number())));
  } else {
    PAGEMILL_CHECK(call == "transferred");
    kv_cache::KvTransferResult result;
    result.id = kv_cache::TransferId(static_cast<uint64_t>(words.Number()));
    result.num_blocks_done = static_cast<int32_t>(words.Number());
    result.status = Status(static_cast<StatusCode>(words.Number()), "pretended");
    scheduler_->FinishTransfers({&result, 1});
  }
  return "";
}

std::string TracedScheduler::EventsToText() const {
  std::string text;
  for (const RequestEvent& event : events_) {
    text += "event " + std::to_string(event.id.value());
    for (int32_t token : event.new_token_ids) text += " " + std::to_string(token);
    if (event.first_tokens) text += " cached=" + std::to_string(event.num_cached_tokens);
    for (const auto& reason : {event.turn_finished, event.finish_reason}) {
      if (reason) text += " ends=" + std::to_string(static_cast<int32_t>(*reason));
    }
    text += '\n';
  }
  return text;
}

std::string TracedScheduler::TransfersToText() const {
  std::string text;
  for (const kv_cache::KvTransfer& transfer : transfers_) {
    text += "transfer " + std::to_string(transfer.id.value()) + " " +
            std::to_string(static_cast<int32_t>(transfer.direction)) + " " + transfer.medium;
    for (const kv_cache::BlockContent& block : transfer.blocks) {
      text += " " + std::to_string(block.hash.words[0]) + ":" + std::to_string(block.block.value());
    }
    for (int64_t slot : transfer.medium_slots) text += " to=" + std::to_string(slot);
    for (int64_t slot : transfer.source_slots) text += " from=" + std::to_string(slot);
    text += '\n';
  }
  return text;
}

}  // namespace pagemill::scheduler
