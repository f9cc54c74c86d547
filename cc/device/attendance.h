// File: cc/device/attendance.h
// Decides which threads of a pool take part in its work while other processes compete for the
// cores. A thread that loses its core in the middle of a piece of work delays all others by a time
// slice of the kernel; if that happens repeatedly, the thread pauses and the others use the
// remaining cores.
//
//   Attendance attendance(pool_threads);
//   attendance.Waited(/*thread=*/1, 4'000'000, now_ns);  // waited for its core, others idle
//   if (attendance.Attends(1)) ...;                          // false after a second such wait
//   if (attendance.IsProbeDue(1, now_ns)) attendance.BeginProbe(1);  // let it run without work
//   attendance.EndProbe(1, /*waited_ns=*/0, now_ns);         // its core was free: it returns
//
// Thread 0 is the caller, which always takes part. If it waits for its core, the last other thread
// pauses instead, which leaves a core to which the kernel can move the caller.
//
// Each of n threads does 1/n of the work, and while one waits for its core in the middle of a
// piece, all wait. It pauses once its waits exceed kToleratedNs and 1/(n + 1) of the time: an
// occasional lost slice costs less than a core for long. It returns after a probe, in which it
// spins without work, so that no thread waits for it; if it did not have a core to itself then, the
// next probe follows after twice the time. Thus a process that never idles costs a thread two
// slices, and none from then on.
//
// Pure: no I/O and no clock. Not thread-safe (used by the caller's thread).
#ifndef PAGEMILL_CC_DEVICE_ATTENDANCE_H_
#define PAGEMILL_CC_DEVICE_ATTENDANCE_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::device {

class Attendance {
 public:
  // Shorter waits are ignored: interrupts and kernel threads take less. A process that takes a core
  // keeps it for 1 to 4 ms, until the next tick of the kernel.
  static constexpr int64_t kLeastWaitNs = 500'000;
  // More than one such time slice.
  static constexpr int64_t kToleratedNs = 5'000'000;
  static constexpr int64_t kFirstAbsenceNs = 10'000'000;
  static constexpr int64_t kLongestAbsenceNs = 640'000'000;
  // A thread that pauses again within this many absences of its return pauses for twice as long.
  static constexpr int64_t kAgainWithinAbsences = 8;

  explicit Attendance(int32_t num_threads);

  bool Attends(int32_t thread) const { return !threads_[thread].absent; }
  int32_t num_absent() const { return num_absent_; }

  // Records that `thread`, which attends, waited this long for its core while it had work.
  void Waited(int32_t thread, int64_t waited_ns, int64_t now_ns);

  // True if `thread` has been absent for long enough to check whether a core is free.
  bool IsProbeDue(int32_t thread, int64_t now_ns) const;
  void BeginProbe(int32_t thread);
  bool IsProbing(int32_t thread) const { return threads_[thread].probing; }
  // `waited_ns`: how long it waited for a core during the probe.
  void EndProbe(int32_t thread, int64_t waited_ns, int64_t now_ns);

  Status CheckIntegrity() const;

 private:
  struct Thread {
    bool absent = false;
    bool probing = false;
    int64_t waited_ns = 0;     // decays with time
    int64_t waited_at_ns = 0;  // time of the last update of waited_ns
    int64_t absence_ns = 0;    // planned length of the last absence; 0: none yet
    int64_t since_ns = 0;      // time when it left or returned
  };
  void Leave(Thread& thread, int64_t absence_ns, int64_t now_ns);

  std::vector<Thread> threads_;
  int32_t num_absent_ = 0;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_ATTENDANCE_H_
