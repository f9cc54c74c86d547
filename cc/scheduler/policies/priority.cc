#include "cc/scheduler/policies/priority.h"

#include <utility>

namespace pagemill::scheduler {
namespace {

std::pair<int32_t, uint64_t> Rank(const RequestState& request) {
  return {request.request->priority, request.arrival};
}

}  // namespace

bool Priority::Earlier::operator()(const RequestState* a, const RequestState* b) const {
  return Rank(*a) < Rank(*b);
}

bool Priority::RunsBefore(const RequestState& a, const RequestState& b) const {
  return Rank(a) < Rank(b);
}

// Not among equals: the one that came first would stop the other, for nothing.
bool Priority::Preempts(const RequestState& waiting, const RequestState& running) const {
  return waiting.request->priority < running.request->priority;
}

}  // namespace pagemill::scheduler
