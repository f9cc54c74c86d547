// File: cc/device/activity.h
// Tells background threads whether a step computes.
//
//   { const Activity::Scope computing(&activity); RunStep(); }   // one thread
//   if (Activity::IsIdle(activity.state())) ...                  // another one
//
// Thread safety: scopes of one activity do not overlap; any thread may ask for its state.
#ifndef PAGEMILL_CC_DEVICE_ACTIVITY_H_
#define PAGEMILL_CC_DEVICE_ACTIVITY_H_

#include <atomic>
#include <cstdint>

namespace pagemill::device {

class Activity {
 public:
  // Marks a computation for its lifetime.
  class Scope {
   public:
    explicit Scope(Activity* activity) : activity_(activity) { activity_->Advance(); }
    ~Scope() { activity_->Advance(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity* activity_;
  };

  // Equal at two times if nothing began or ended in between.
  uint64_t state() const { return changes_.load(std::memory_order_relaxed); }
  static bool IsIdle(uint64_t state) { return state % 2 == 0; }

 private:
  void Advance() { changes_.fetch_add(1, std::memory_order_relaxed); }

  std::atomic<uint64_t> changes_ = 0;  // beginnings and ends
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_ACTIVITY_H_
