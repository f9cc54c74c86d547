// File: cc/scheduler/policies/fair.h
// Weighted fair sharing among tenants (Request::tenant). Each tenant has an account of the tokens
// it was served, prompt and generated, and the waiting tenant with the smallest account for its
// weight, that is with the largest deficit, starts its oldest request next. When blocks run out,
// the tenant with the largest account for its weight loses its youngest request.
//
//   Fair policy({{"batch", 1}, {"interactive", 4}});  // others have weight 1
//
// Bound: of two tenants that always have requests waiting, served tokens divided by weight differ
// by at most S x T / w, with S requests running at the same time, T tokens of the largest request,
// w the smaller weight: the tenant that is ahead is not chosen again, and at most S of its requests
// run on. So among a bounded number of tenants every request starts. Tokens that are computed again
// after a preemption cost nothing.
//
// A tenant that comes back to the queue starts level with the tenant that was chosen last: it saves
// up no credit, but keeps its debt. Debts of idle tenants are remembered until the others have
// caught up, and at most kMaxIdleTenants of them, the largest.
//
// Insert(), Remove() and Next() cost O(log waiting), Charge() O(1). Integers only, exact.
#ifndef PAGEMILL_CC_SCHEDULER_POLICIES_FAIR_H_
#define PAGEMILL_CC_SCHEDULER_POLICIES_FAIR_H_

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/scheduler/policies/policy.h"
#include "cc/scheduler/policies/tenant_weights.h"

namespace pagemill::scheduler {

class Fair final : public Policy {
 public:
  static constexpr size_t kMaxIdleTenants = 1024;

  // `weights` are in range.
  explicit Fair(TenantWeights weights) : weights_(std::move(weights)) {}

  void Insert(RequestState* request) override;
  void Remove(RequestState* request) override;
  RequestState* Next() override;
  size_t Victim(std::span<RequestState* const> running) const override;
  void Charge(const RequestState& request, int32_t num_tokens) override;
  bool charges() const override { return true; }
  void Forget(const RequestState& request) override;
  Status CheckIntegrity() const override;

  size_t num_tenants() const { return by_name_.size(); }  // those it remembers
  // Its account: tokens that it was served, and credit that it did not use; 0 if unknown.
  int64_t served_tokens(const std::string& tenant) const;

 private:
  // A tenant's account for its weight, tokens / weight, as an exact fraction.
  struct Level {
    int64_t tokens = 0;  // below 2^53, so that the products fit
    int32_t weight = 1;
    bool Below(const Level& other) const { return tokens * other.weight < other.tokens * weight; }
  };
  struct Earlier {
    bool operator()(const RequestState* a, const RequestState* b) const {
      return a->arrival < b->arrival;
    }
  };
  struct Rank {
    Level level;
    uint64_t joined = 0;  // number of the join: unique, the earlier one first among equals
    int32_t tenant = 0;
    bool operator<(const Rank& other) const;
  };
  struct Tenant {
    std::string name;
    Level level;
    Rank rank;  // its element of `queue_` or `idle_`; the level may have grown since
    std::set<RequestState*, Earlier> waiting;
    int64_t num_requests = 0;  // waiting and running; 0 = idle
  };

  Tenant* Enter(RequestState* request);
  void Join(std::set<Rank>* set, Tenant* tenant);
  void Raise(Tenant* tenant) const;
  void Leave(Tenant* tenant);
  void Drop(int32_t index);
  Status CheckTenant(const Tenant& tenant) const;

  const TenantWeights weights_;
  std::vector<Tenant> tenants_;
  std::vector<int32_t> free_tenants_;  // unused indices, a stack
  std::unordered_map<std::string, int32_t> by_name_;
  std::set<Rank> queue_;  // tenants with waiting requests
  std::set<Rank> idle_;   // tenants without requests, in debt
  Level now_;             // of the tenant that was chosen last; never falls
  uint64_t num_joins_ = 0;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_POLICIES_FAIR_H_
