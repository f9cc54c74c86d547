// File: cc/device/attendance.h
// Which threads of a pool take part in its work while other processes want the cores, too. A thread
// that has to wait for its core with work in its hands holds up all others for a time slice of the
// kernel; where that happens again and again it stays away, and the others use the cores that are
// left.
//
//   Attendance attendance(pool_threads);
//   attendance.Waited(/*thread=*/1, 4'000'000, now_ns);      // for its core, while others waited
//   if (attendance.Attends(1)) ...;                          // not after a second time of that
//   if (attendance.IsProbeDue(1, now_ns)) attendance.BeginProbe(1);  // let it run without work
//   attendance.EndProbe(1, /*waited_ns=*/0, now_ns);         // it had its core: it is back
//
// Thread 0 is the caller, who always takes part. Where it waits for its core, the last of the
// others stays away, and the kernel has a core to move the caller to.
//
// A thread of n does an n-th of the work, and while it waits for its core with work in its hands,
// all wait. So it leaves once its waits exceed kToleratedNs and one part in n + 1 of the time: it
// would rather lose a slice now and then than a core for long. It returns after a probe, in which
// it runs without work, so that no thread waits for it; unless it had a core to itself then, the
// next probe follows after twice the time. Thus a process that never rests costs a thread two
// slices, and none from then on.
//
// Pure: numbers in, decisions out. Not thread-safe (the caller's thread has it).
#ifndef PAGEMILL_CC_DEVICE_ATTENDANCE_H_
#define PAGEMILL_CC_DEVICE_ATTENDANCE_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::device {

class Attendance {
 public:
  // Shorter waits count as none: interrupts and kernel threads come and go in less. A process that
  // takes a core keeps it for 1 to 4 ms, up to the next tick of the kernel.
  static constexpr int64_t kLeastWaitNs = 500'000;
  // More than one such turn.
  static constexpr int64_t kToleratedNs = 5'000'000;
  static constexpr int64_t kFirstAbsenceNs = 10'000'000;
  static constexpr int64_t kLongestAbsenceNs = 640'000'000;
  // Who leaves within so many absences after it came back stays away for twice as long.
  static constexpr int64_t kAgainWithinAbsences = 8;

  explicit Attendance(int32_t num_threads);

  bool Attends(int32_t thread) const { return !threads_[thread].absent; }
  int32_t num_absent() const { return num_absent_; }

  // `thread`, which attends, waited for its core for so long while it had work.
  void Waited(int32_t thread, int64_t waited_ns, int64_t now_ns);

  // Has `thread` been away for long enough to look whether there is a core for it?
  bool IsProbeDue(int32_t thread, int64_t now_ns) const;
  void BeginProbe(int32_t thread);
  bool IsProbing(int32_t thread) const { return threads_[thread].probing; }
  // It waited for a core for so long in the meantime.
  void EndProbe(int32_t thread, int64_t waited_ns, int64_t now_ns);

  Status CheckIntegrity() const;

 private:
  struct Thread {
    bool absent = false;
    bool probing = false;
    int64_t waited_ns = 0;     // not yet forgiven
    int64_t waited_at_ns = 0;  // when that was counted
    int64_t absence_ns = 0;    // how long the last absence was to be; 0: none yet
    int64_t since_ns = 0;      // when it left, or came back
  };
  void Leave(Thread& thread, int64_t absence_ns, int64_t now_ns);

  std::vector<Thread> threads_;
  int32_t num_absent_ = 0;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_ATTENDANCE_H_
