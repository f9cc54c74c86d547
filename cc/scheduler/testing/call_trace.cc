#include "cc/scheduler/testing/call_trace.h"

#include <algorithm>
#include <deque>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "cc/step/text_codec.h"

namespace pagemill::scheduler {
namespace {

using step::Request;
using step::RequestId;
using step::StepPlan;

constexpr std::string_view kOutcome = "=\n", kEnd = ".\n";

class Recorder {
 public:
  explicit Recorder(const TraceSetup& setup)
      : setup_(setup), traced_(setup.options, setup.connector), random_(setup.seed) {}

  CallTrace Run() {
    for (int i = 0; i < setup_.num_calls; ++i) {
      Make(Draw());
      const SchedulerStats stats = traced_.scheduler().stats();
      for (size_t k = 0; k < kNumParkReasons; ++k) {
        trace_.most_parked[k] = std::max(trace_.most_parked[k], stats.num_parked[k]);
      }
    }
    trace_.stats = traced_.scheduler().stats();
    return std::move(trace_);
  }

 private:
  void Make(const std::string& call) {
    trace_.text += call;
    trace_.text += kOutcome;
    trace_.text += traced_.Call(call);
    trace_.text += kEnd;
    const auto& started = traced_.transfers();
    copying_.insert(copying_.end(), started.begin(), started.end());
    if (call.starts_with("schedule") && !traced_.plan().empty())
      in_flight_.push_back(traced_.plan());
  }

  // One draw an expression: the order of several would be the compiler's.
  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }
  std::string AnyId() { return std::to_string(Below(8) == 0 ? Below(num_requests_ + 1) : Late()); }
  int32_t Late() { return std::max(0, num_requests_ - 1 - Below(12)); }

  std::string Draw() {
    const int32_t dice = Below(100);
    if (dice < 14) return step::ToText(DrawRequest()) + "\n";
    if (dice < 17) return "abort " + AnyId() + "\n";
    if (dice < 21) return "release " + AnyId() + "\n";
    if (dice < 27) return DrawExtension();
    if (dice < 29) return "expire " + std::to_string(now_us_ += 10) + "\n";
    if (dice < 31) return DrawPause();
    if (dice < 32) return "reset " + std::to_string(Below(2)) + "\n";
    if (dice < 42 && !copying_.empty()) return DrawTransferResult();
    if (dice < 75 && in_flight_.size() < setup_.max_steps_in_flight) return DrawSchedule();
    return in_flight_.empty() ? DrawSchedule() : DrawResult();
  }

  Request DrawRequest() {
    Request request;
    request.id = RequestId(static_cast<uint64_t>(num_requests_++));
    const int32_t size = 1 + Below(Below(3) == 0 ? 40 : 20);
    const int32_t common = Below(2) == 0 ? size : Below(size + 1);
    const int32_t family = Below(4);
    for (int32_t i = 0; i < size; ++i) {
      request.prompt_token_ids.push_back(i < common ? (family * 17 + i * 5) % 61 : Below(61));
    }
    request.sampling.max_tokens = 1 + Below(20);
    request.sampling.eos_token_ids = {7};
    if (setup_.options.policy == "priority") request.priority = Below(4);
    if (setup_.options.policy == "fair") request.tenant = std::string(1, "abc"[Below(3)]);
    if (Below(20) == 0) request.cache_salt = "s";
    request.starts_held = Below(6) == 0;
    request.streaming_input = Below(6) == 0;
    if (Below(6) == 0) request.start_deadline_us = now_us_ + Below(50);
    if (Below(6) == 0) request.deadline_us = now_us_ + Below(100);
    return request;
  }

  std::string DrawExtension() {
    std::string call = "extend " + AnyId();
    call += " " + std::to_string(Below(3));
    for (int32_t i = Below(8); i >= 0; --i) call += " " + std::to_string(Below(61));
    return call + "\n";
  }

  std::string DrawSchedule() {
    if (Below(3) > 0) return "schedule\n";
    return "schedule " + std::to_string(1 + Below(16)) + "\n";
  }

  std::string DrawPause() {
    if (traced_.scheduler().pause_mode()) return "resume\n";
    return "pause " + std::to_string(Below(8) == 0 ? 2 : Below(2)) + "\n";
  }

  std::string DrawTransferResult() {
    const auto which = copying_.begin() + Below(static_cast<int32_t>(copying_.size()));
    const std::string id = std::to_string(which->id.value());
    if (Below(12) == 0) return "abandon " + id + "\n";
    const auto size = static_cast<int32_t>(which->blocks.size());
    const bool probe = which->direction == kv_cache::KvTransfer::Direction::kProbe;
    const bool fails = Below(5) == 0;
    const bool partly = (fails && size > 0) || probe;
    const int32_t done = partly ? Below(size + (probe ? 1 : 0)) : size;
    copying_.erase(which);
    const StatusCode code = fails && !probe ? StatusCode::kInternal : StatusCode::kOk;
    return "transferred " + id + " " + std::to_string(done) + " " +
           std::to_string(static_cast<int32_t>(code)) + "\n";
  }

  // Answers the oldest step. Some drafts are accepted; now and then a request fails.
  std::string DrawResult() {
    const StepPlan plan = std::move(in_flight_.front());
    in_flight_.pop_front();
    step::StepResult result;
    result.step_id = plan.step_id;
    for (const step::ScheduledRequest& entry : plan.scheduled) {
      step::RequestResult& answer = result.results.emplace_back();
      answer.index = entry.index;
      if (Below(200) == 0) {
        answer.failure = Internal("pretended");
      } else if (entry.sample) {
        const std::vector<int32_t>& drafts = entry.draft_token_ids;
        const int32_t accepted = Below(static_cast<int32_t>(drafts.size()) + 1);
        answer.sampled_token_ids.Append(std::span(drafts).first(static_cast<size_t>(accepted)));
        for (int32_t& token : answer.sampled_token_ids) {
          if (token == step::kPlaceholderTokenId) token = Below(61);
        }
        answer.sampled_token_ids.push_back(Below(61));
        if (!drafts.empty() && drafts[0] == step::kPlaceholderTokenId) {
          answer.num_missing_drafts = Below(static_cast<int32_t>(drafts.size()) - accepted + 1);
        }
        const int32_t proposed = Below(setup_.options.max_draft_tokens + 1);
        for (int32_t i = 0; i < proposed; ++i) answer.draft_token_ids.push_back(Below(61));
      }
    }
    return step::ToText(result);
  }

  const TraceSetup setup_;
  TracedScheduler traced_;
  std::mt19937 random_;
  CallTrace trace_;
  std::deque<StepPlan> in_flight_;
  std::vector<kv_cache::KvTransfer> copying_;
  int32_t num_requests_ = 0;
  int64_t now_us_ = 0;
};

// Cuts off and returns what stands before the line `end`.
std::string_view CutBefore(std::string_view end, std::string_view* text) {
  size_t at = 0;
  while (!text->substr(at).starts_with(end)) at = text->find('\n', at) + 1;
  const std::string_view head = text->substr(0, at);
  text->remove_prefix(at + end.size());
  return head;
}

}  // namespace

CallTrace RecordCalls(const TraceSetup& setup) { return Recorder(setup).Run(); }

int ReplayCalls(const TraceSetup& setup, std::string_view trace) {
  TracedScheduler traced(setup.options, setup.connector);
  int num_calls = 0;
  while (!trace.empty()) {
    const std::string_view call = CutBefore(kOutcome, &trace);
    if (traced.Call(call) != CutBefore(kEnd, &trace)) break;
    ++num_calls;
  }
  return num_calls;
}

}  // namespace pagemill::scheduler
