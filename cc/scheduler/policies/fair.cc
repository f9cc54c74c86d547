#include "cc/scheduler/policies/fair.h"

#include <algorithm>

namespace pagemill::scheduler {

bool Fair::Rank::operator<(const Rank& other) const {
  if (level.Below(other.level)) return true;
  if (other.level.Below(level)) return false;
  return joined < other.joined;
}

void Fair::Insert(RequestState* request) {
  Tenant* tenant = request->tenant_index < 0 ? Enter(request) : &tenants_[request->tenant_index];
  if (tenant->waiting.empty()) {
    Raise(tenant);
    Join(&queue_, tenant);
  }
  tenant->waiting.insert(request);
}

// Notes a request that comes for the first time.
Fair::Tenant* Fair::Enter(RequestState* request) {
  const std::string& name = request->request->tenant;
  const auto [found, is_new] = by_name_.try_emplace(name, 0);
  if (is_new) {
    if (free_tenants_.empty()) {
      free_tenants_.push_back(static_cast<int32_t>(tenants_.size()));
      tenants_.emplace_back();
    }
    found->second = free_tenants_.back();
    free_tenants_.pop_back();
    const auto weight = weights_.find(name);
    Tenant* tenant = &tenants_[found->second];
    tenant->name = name;
    tenant->level = {0, weight == weights_.end() ? 1 : weight->second};
  }
  request->tenant_index = found->second;
  Tenant* tenant = &tenants_[found->second];
  tenant->rank.tenant = found->second;
  if (tenant->num_requests++ == 0 && !is_new) idle_.erase(tenant->rank);
  return tenant;
}

void Fair::Join(std::set<Rank>* set, Tenant* tenant) {
  tenant->rank.level = tenant->level;
  tenant->rank.joined = num_joins_++;
  set->insert(tenant->rank);
}

// Brings the tenant up to the level of the others: unused credit is gone.
void Fair::Raise(Tenant* tenant) const {
  if (!tenant->level.Below(now_)) return;
  const int64_t weight = tenant->level.weight;
  tenant->level.tokens = (now_.tokens * weight + now_.weight - 1) / now_.weight;
}

void Fair::Remove(RequestState* request) {
  Tenant* tenant = &tenants_[request->tenant_index];
  tenant->waiting.erase(request);
  if (tenant->waiting.empty()) queue_.erase(tenant->rank);
}

RequestState* Fair::Next() {
  while (!queue_.empty()) {
    Tenant* tenant = &tenants_[queue_.begin()->tenant];
    if (!tenant->rank.level.Below(tenant->level)) {
      now_ = tenant->level;
      return *tenant->waiting.begin();
    }
    // It was charged since it got its place. Levels only grow, so all others stand where they are,
    // or further back.
    queue_.erase(queue_.begin());
    tenant->rank.level = tenant->level;
    queue_.insert(tenant->rank);
  }
  return nullptr;
}

size_t Fair::Victim(std::span<RequestState* const> running) const {
  size_t victim = 0;
  for (size_t i = 1; i < running.size(); ++i) {
    const Level& best = tenants_[running[victim]->tenant_index].level;
    const Level& level = tenants_[running[i]->tenant_index].level;
    const bool younger = running[i]->arrival > running[victim]->arrival;
    if (best.Below(level) || (younger && !level.Below(best))) victim = i;
  }
  return victim;
}

void Fair::Charge(const RequestState& request, int32_t num_tokens) {
  tenants_[request.tenant_index].level.tokens += num_tokens;
}

void Fair::Forget(const RequestState& request) {
  if (request.tenant_index < 0) return;
  Tenant* tenant = &tenants_[request.tenant_index];
  if (--tenant->num_requests == 0) Leave(tenant);
}

// The tenant is idle. Who is not in debt can as well be forgotten: it would be raised.
void Fair::Leave(Tenant* tenant) {
  Join(&idle_, tenant);
  while (!idle_.empty() && (idle_.size() > kMaxIdleTenants || !now_.Below(idle_.begin()->level))) {
    const int32_t index = idle_.begin()->tenant;
    idle_.erase(idle_.begin());
    Drop(index);
  }
}

void Fair::Drop(int32_t index) {
  by_name_.erase(tenants_[index].name);
  tenants_[index] = Tenant();
  free_tenants_.push_back(index);
}

int64_t Fair::served_tokens(const std::string& tenant) const {
  const auto found = by_name_.find(tenant);
  return found == by_name_.end() ? 0 : tenants_[found->second].level.tokens;
}

Status Fair::CheckTenant(const Tenant& tenant) const {
  const std::string name = "tenant \"" + tenant.name + "\": ";
  const auto waiting = static_cast<int64_t>(tenant.waiting.size());
  if (tenant.num_requests < waiting) return Internal(name + "more requests wait than it has");
  if (tenant.level.Below(tenant.rank.level)) return Internal(name + "its account fell");
  if (queue_.contains(tenant.rank) == tenant.waiting.empty()) {
    return Internal(name + "its place in the queue does not fit its requests");
  }
  if (idle_.contains(tenant.rank) != (tenant.num_requests == 0)) {
    return Internal(name + "idle or not?");
  }
  return OkStatus();
}

Status Fair::CheckIntegrity() const {
  size_t queued = 0, idle = 0;
  for (const auto& [name, index] : by_name_) {
    const Tenant& tenant = tenants_[index];
    if (tenant.name != name || tenant.rank.tenant != index) {
      return Internal("tenant \"" + name + "\": kept under another name");
    }
    PAGEMILL_RETURN_IF_ERROR(CheckTenant(tenant));
    queued += !tenant.waiting.empty();
    idle += tenant.num_requests == 0;
  }
  if (queued != queue_.size() || idle != idle_.size() || idle > kMaxIdleTenants ||
      by_name_.size() + free_tenants_.size() != tenants_.size()) {
    return Internal("fair policy: tenants and their sets disagree");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
