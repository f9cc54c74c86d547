#include "cc/device/attendance.h"

#include <algorithm>
#include <string>

namespace pagemill::device {

Attendance::Attendance(int32_t num_threads) : threads_(static_cast<size_t>(num_threads)) {
  PAGEMILL_CHECK(num_threads >= 1);
}

void Attendance::Waited(int32_t thread, int64_t waited_ns, int64_t now_ns) {
  PAGEMILL_CHECK(Attends(thread));
  if (waited_ns < kLeastWaitNs) return;
  Thread& waiting = threads_[thread];
  const auto parts = static_cast<int64_t>(threads_.size()) + 1;
  const int64_t forgiven_ns = (now_ns - waiting.waited_at_ns) / parts;
  waiting.waited_ns = std::max<int64_t>(waiting.waited_ns - forgiven_ns, 0) + waited_ns;
  waiting.waited_at_ns = now_ns;
  if (waiting.waited_ns <= kToleratedNs) return;
  waiting.waited_ns = 0;
  if (thread == 0) {
    thread = static_cast<int32_t>(threads_.size()) - 1;
    while (thread > 0 && !Attends(thread)) --thread;
    if (thread == 0) return;
  }
  Thread& leaving = threads_[thread];
  const bool again = leaving.absence_ns > 0 &&
                     now_ns - leaving.since_ns < kAgainWithinAbsences * leaving.absence_ns;
  ++num_absent_;
  Leave(leaving, again ? 2 * leaving.absence_ns : kFirstAbsenceNs, now_ns);
}

bool Attendance::IsProbeDue(int32_t thread, int64_t now_ns) const {
  const Thread& of = threads_[thread];
  return of.absent && !of.probing && now_ns - of.since_ns >= of.absence_ns;
}

void Attendance::BeginProbe(int32_t thread) {
  PAGEMILL_CHECK(!Attends(thread) && !IsProbing(thread));
  threads_[thread].probing = true;
}

void Attendance::EndProbe(int32_t thread, int64_t waited_ns, int64_t now_ns) {
  PAGEMILL_CHECK(IsProbing(thread));
  Thread& probed = threads_[thread];
  probed.probing = false;
  if (waited_ns >= kLeastWaitNs) {
    Leave(probed, 2 * probed.absence_ns, now_ns);
    return;
  }
  probed.absent = false;
  probed.since_ns = now_ns;
  probed.waited_ns = 0;
  --num_absent_;
}

void Attendance::Leave(Thread& thread, int64_t absence_ns, int64_t now_ns) {
  thread.absent = true;
  thread.absence_ns = std::min(absence_ns, kLongestAbsenceNs);
  thread.since_ns = now_ns;
}

Status Attendance::CheckIntegrity() const {
  int32_t absent = 0;
  for (size_t i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    absent += thread.absent ? 1 : 0;
    const std::string name = "thread " + std::to_string(i);
    if (thread.probing && !thread.absent) return Internal(name + " probes but is not absent");
    if (thread.waited_ns > kToleratedNs) return Internal(name + " has waited for too long");
    if (thread.absent && thread.absence_ns < kFirstAbsenceNs) {
      return Internal(name + " is absent for less than the first absence");
    }
    if (thread.absence_ns > kLongestAbsenceNs) return Internal(name + " is absent for too long");
  }
  if (threads_[0].absent) return Internal("the caller is absent");
  if (absent != num_absent_) return Internal("the count of absent threads is wrong");
  return OkStatus();
}

}  // namespace pagemill::device
