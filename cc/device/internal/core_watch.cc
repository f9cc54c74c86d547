#include "cc/device/internal/core_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace pagemill::device::internal {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CoreWatch::CoreWatch(int32_t num_threads, Source source)
    : attendance_(num_threads),
      source_(std::move(source)),
      ids_(static_cast<size_t>(num_threads)),
      probed_ns_(static_cast<size_t>(num_threads)),
      delays_(static_cast<size_t>(num_threads)),
      seen_ns_(static_cast<size_t>(num_threads)) {
  attending_.reserve(static_cast<size_t>(num_threads));
  CountAttending();
}

void CoreWatch::CallerWaited(int64_t waited_ns) {
  if (waited_ns < Attendance::kLeastWaitNs) return;
  const int64_t now_ns = NowNs();
  for (const int32_t thread : attending()) {
    // Growth() includes earlier waits that delayed no other thread.
    if (thread > 0) attendance_.Waited(thread, std::min(Growth(thread), waited_ns), now_ns);
  }
  if (!all_attend()) CountAttending();
}

void CoreWatch::OthersWaited() {
  attendance_.Waited(0, Growth(0), NowNs());
  if (!all_attend()) CountAttending();
}

void CoreWatch::Advance(const std::function<void(int32_t thread)>& begin_probe) {
  const int64_t now_ns = NowNs();
  for (int32_t thread = 1; thread < static_cast<int32_t>(ids_.size()); ++thread) {
    if (attendance_.IsProbing(thread)) {
      const int64_t waited_ns = probed_ns_[thread].load(std::memory_order_acquire);
      if (waited_ns < 0) continue;
      attendance_.EndProbe(thread, waited_ns, now_ns);
      Growth(thread);  // discards waits from before its return
    } else if (attendance_.IsProbeDue(thread, now_ns)) {
      attendance_.BeginProbe(thread);
      probed_ns_[thread].store(-1, std::memory_order_relaxed);
      begin_probe(thread);
    }
  }
  CountAttending();
}

int64_t CoreWatch::Growth(int32_t thread) {
  const std::optional<int64_t> total_ns = Total(thread);
  if (!total_ns) return 0;
  return *total_ns - std::exchange(seen_ns_[thread], *total_ns);
}

std::optional<int64_t> CoreWatch::Total(int32_t thread) {
  if (source_) return source_(thread);
  if (thread == 0) {
    // A pool may be made on one thread and used by another; ignore earlier waits of the new caller.
    const auto caller = static_cast<pid_t>(::syscall(SYS_gettid));
    if (ids_[0].exchange(caller) != caller) {
      delays_[0].emplace(caller);
      seen_ns_[0] = delays_[0]->TotalNs().value_or(0);
    }
  }
  if (!delays_[thread]) delays_[thread].emplace(ids_[thread]);
  return delays_[thread]->TotalNs();
}

void CoreWatch::CountAttending() {
  attending_.clear();
  for (int32_t thread = 0; thread < static_cast<int32_t>(ids_.size()); ++thread) {
    if (attendance_.Attends(thread)) attending_.push_back(thread);
  }
}

}  // namespace pagemill::device::internal
