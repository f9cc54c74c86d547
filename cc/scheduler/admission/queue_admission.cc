#include "cc/scheduler/admission/queue_admission.h"

#include <algorithm>
#include <memory>

#include "cc/scheduler/policies/policies.h"

namespace pagemill::scheduler {
namespace {

constexpr int64_t kMicrosPerSecond = 1'000'000;
constexpr int64_t kLongestRetrySeconds = 600;

std::string Text(int64_t n) { return std::to_string(n); }

int64_t SecondsRoundedUp(int64_t micros) {
  return (micros + kMicrosPerSecond - 1) / kMicrosPerSecond;
}

Status Exhausted(std::string why, int64_t retry_after_s) {
  const int64_t seconds = std::clamp<int64_t>(retry_after_s, 1, kLongestRetrySeconds);
  return ResourceExhausted(std::move(why) + "; retry in about " + Text(seconds) + " s")
      .WithRetryAfter(static_cast<int32_t>(seconds));
}

}  // namespace

QueueAdmission::QueueAdmission(const SchedulerOptions& options)
    : max_num_seqs_(options.max_num_seqs),
      max_waiting_requests_(options.max_waiting_requests),
      max_waiting_tokens_(options.max_waiting_tokens),
      max_waiting_per_tenant_(options.max_waiting_per_tenant),
      weights_(options.tenant_weights) {
  const std::unique_ptr<Policy> policy = *MakePolicy(options.policy, options.tenant_weights);
  by_priority_ = policy->uses_priority();
  by_share_ = policy->charges();
}

Status QueueAdmission::CheckRoom() const {
  if (num_unfinished_ < max_num_seqs_ + max_waiting_requests_) return OkStatus();
  return Refuse(
      Text(max_waiting_requests_) + " requests are waiting already (--max-num-queued-reqs)",
      {0, 1});
}

Status QueueAdmission::Check(const step::Request& request, std::optional<int64_t> now_us) const {
  PAGEMILL_RETURN_IF_ERROR(CheckRoom());
  const auto prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  if (max_waiting_tokens_ > 0 && waiting_.requests > 0 &&
      waiting_.prompt_tokens + prompt > max_waiting_tokens_) {
    return Refuse(
        "prompts of " + Text(waiting_.prompt_tokens) +
            " tokens are waiting already, and this one has " + Text(prompt) + ": more than the " +
            Text(max_waiting_tokens_) + " tokens that may wait (--max-waiting-tokens)",
        {std::min(waiting_.prompt_tokens, waiting_.prompt_tokens + prompt - max_waiting_tokens_),
         0});
  }
  if (max_waiting_per_tenant_ > 0 && num_unfinished_ >= max_num_seqs_) {
    const auto found = tenants_.find(request.tenant);
    if (found != tenants_.end() && found->second.waiting.requests >= max_waiting_per_tenant_) {
      return Refuse(Text(max_waiting_per_tenant_) + " requests of tenant \"" + request.tenant +
                        "\" are waiting already (--max-waiting-per-tenant)",
                    {0, 1});
    }
  }
  return now_us && request.start_deadline_us ? CheckStart(request, *now_us) : OkStatus();
}

Status QueueAdmission::Refuse(const std::string& why, const WorkAhead& until_retry) const {
  return Exhausted(why, SecondsRoundedUp(estimator_.WaitMicros(until_retry).value_or(0)));
}

Status QueueAdmission::CheckStart(const step::Request& request, int64_t now_us) const {
  const std::optional<int64_t> wait_us = WaitMicros(request);
  const int64_t deadline_us = *request.start_deadline_us;
  const int64_t left_us = deadline_us <= now_us ? 0 : deadline_us - now_us;
  if (!wait_us || *wait_us <= left_us) return OkStatus();
  return Exhausted("the request would start in about " + Text(SecondsRoundedUp(*wait_us)) +
                       " s, after its start deadline in " + Text(left_us / 1000) +
                       " ms (--max-queue-time, or the request's own)",
                   SecondsRoundedUp(*wait_us - left_us));
}

QueueTicket QueueAdmission::Enter(const step::Request& request) {
  const auto found = tenants_.try_emplace(request.tenant).first;
  Tenant& tenant = found->second;
  const QueueTicket ticket{.waits = true,
                           .prompt_tokens = static_cast<int32_t>(request.prompt_token_ids.size()),
                           .priority = request.priority,
                           .tenant = &found->first};
  if (tenant.waiting.requests == 0) waiting_weight_ += Weight(request.tenant);
  for (Waiting* waiting : {&waiting_, &priorities_[request.priority].waiting, &tenant.waiting}) {
    waiting->requests += 1;
    waiting->prompt_tokens += ticket.prompt_tokens;
  }
  ++tenant.unfinished;
  ++num_unfinished_;
  return ticket;
}

void QueueAdmission::Start(QueueTicket* ticket) {
  if (!ticket->waits) return;
  ticket->waits = false;
  Class& priority = priorities_.find(ticket->priority)->second;
  Tenant& tenant = tenants_.find(*ticket->tenant)->second;
  for (Waiting* waiting : {&waiting_, &priority.waiting, &tenant.waiting}) {
    waiting->requests -= 1;
    waiting->prompt_tokens -= ticket->prompt_tokens;
  }
  ++priority.running;
  if (tenant.waiting.requests == 0) waiting_weight_ -= Weight(*ticket->tenant);
}

void QueueAdmission::Leave(const QueueTicket& ticket) {
  QueueTicket left = ticket;
  Start(&left);
  --num_unfinished_;
  const auto priority = priorities_.find(left.priority);
  if (--priority->second.running == 0 && priority->second.waiting.requests == 0) {
    priorities_.erase(priority);
  }
  const auto tenant = tenants_.find(*left.tenant);
  if (--tenant->second.unfinished == 0) tenants_.erase(tenant);
}

std::optional<int64_t> QueueAdmission::WaitMicros(const step::Request& request) const {
  return estimator_.WaitMicros(Ahead(request));
}

WorkAhead QueueAdmission::Ahead(const step::Request& request) const {
  Waiting before = waiting_;
  int64_t running = num_unfinished_ - waiting_.requests;
  if (by_priority_) {
    before = {};
    running = 0;
    for (const auto& [priority, requests] : priorities_) {
      if (priority > request.priority) break;  // it preempts those that run
      before.requests += requests.waiting.requests;
      before.prompt_tokens += requests.waiting.prompt_tokens;
      running += requests.running;
    }
  } else if (by_share_) {
    before = AheadByShare(request.tenant);
  }
  return {before.prompt_tokens,
          std::max<int64_t>(0, running + before.requests - max_num_seqs_ + 1)};
}

// The tenant's requests wait for one another, and each time for the others' share of the slots.
QueueAdmission::Waiting QueueAdmission::AheadByShare(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end() || found->second.waiting.requests == 0) return {};
  const Waiting& own = found->second.waiting;
  const int64_t weight = Weight(tenant);
  return {std::min(waiting_.requests, own.requests * waiting_weight_ / weight),
          std::min(waiting_.prompt_tokens, own.prompt_tokens * waiting_weight_ / weight)};
}

int64_t QueueAdmission::Weight(const std::string& tenant) const {
  const auto found = weights_.find(tenant);
  return found == weights_.end() ? 1 : found->second;
}

Status QueueAdmission::CheckIntegrity() const {
  Waiting by_priority, by_tenant;
  int64_t running = 0, unfinished = 0, weight = 0;
  for (const auto& [key, priority] : priorities_) {
    by_priority.requests += priority.waiting.requests;
    by_priority.prompt_tokens += priority.waiting.prompt_tokens;
    running += priority.running;
  }
  for (const auto& [name, tenant] : tenants_) {
    by_tenant.requests += tenant.waiting.requests;
    by_tenant.prompt_tokens += tenant.waiting.prompt_tokens;
    unfinished += tenant.unfinished;
    if (tenant.waiting.requests > 0) weight += Weight(name);
    if (tenant.unfinished <= 0) return Internal("tenant \"" + name + "\" is kept without requests");
  }
  for (const Waiting& sum : {by_priority, by_tenant}) {
    if (sum.requests != waiting_.requests || sum.prompt_tokens != waiting_.prompt_tokens) {
      return Internal("queue admission: the waiting requests do not add up");
    }
  }
  if (running + waiting_.requests != num_unfinished_ || unfinished != num_unfinished_ ||
      weight != waiting_weight_) {
    return Internal("queue admission: the unfinished requests do not add up");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
