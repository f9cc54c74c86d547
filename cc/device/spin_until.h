// File: cc/device/spin_until.h
// Waits a short time for another thread or process without sleeping: pauses, and occasionally
// yields the core.
//
//   if (!SpinUntil(std::chrono::microseconds(100), [&] { return flag.load(); })) Park();
//
// `ready` is called often and must order memory itself. Thread safety: that of `ready`.
#ifndef PAGEMILL_CC_DEVICE_SPIN_UNTIL_H_
#define PAGEMILL_CC_DEVICE_SPIN_UNTIL_H_

#include <sched.h>

#include <chrono>

namespace pagemill::device {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  asm volatile("" ::: "memory");
#endif
}

// Spins until `ready()` or for `limit`; returns the last `ready()`. Yields the core once per
// `yield_interval`: if another process wants the core, a yield costs a time slice.
template <typename Ready>
bool SpinUntil(std::chrono::steady_clock::duration limit, const Ready& ready,
               std::chrono::steady_clock::duration yield_interval = {}) {
  // Pauses between reads of the clock (a pause is 10 to 60 ns).
  constexpr int kPausesPerLook = 64;
  if (ready()) return true;
  auto now = std::chrono::steady_clock::now();
  const auto deadline = now + limit;
  auto next_yield = now + yield_interval;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (ready()) return true;
      Pause();
    }
    now = std::chrono::steady_clock::now();
    if (now < next_yield) continue;
    sched_yield();
    next_yield = now + yield_interval;
  } while (now < deadline);
  return ready();
}

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_SPIN_UNTIL_H_
