// File: cc/device/thread_pool.h
// The one pool of compute threads of an engine. The calling thread takes part as worker 0.
//
//   ThreadPool pool({.num_threads = 2});
//   pool.ParallelFor(rows, /*grain=*/8, [&](int64_t begin, int64_t end, int worker) { ... });
//
// ParallelFor gives each thread a contiguous part of [0, n), from which it takes chunks of at least
// `grain`; a thread that is done first helps the others. It returns when all is done, and never
// waits for a thread that has taken no chunk. The assignment of chunks to workers is not fixed, so
// a body must give the same result on every worker (every kernel here does: an output element is
// computed by one chunk) and must not wait for another chunk to begin: one thread may run them all.
// Below 2 * grain the caller runs everything and no worker is woken. Workers spin for `spin_us`
// after work, then park, so an idle engine uses no CPU. A thread that other processes keep from its
// core in the middle of a chunk pauses until it has a core again (attendance.h), so that the others
// do not wait for it. One ParallelFor at a time (the engine thread); not reentrant.
#ifndef PAGEMILL_CC_DEVICE_THREAD_POOL_H_
#define PAGEMILL_CC_DEVICE_THREAD_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

namespace pagemill::device {

struct ThreadPoolOptions {
  int32_t num_threads = 1;  // workers, the caller included; >= 1
  int32_t spin_us = 100;    // how long an idle worker spins before it parks
  // Returns the time that thread `i` has waited for a core; null: uses the kernel's count
  // (run_delay.h).
  std::function<std::optional<int64_t>(int32_t thread)> run_delay_ns = nullptr;
};

// Sums since timing began.
struct ThreadPoolTimes {
  double caller_waited_s = 0;    // for chunks that workers held
  double workers_busy_s = 0;     // in bodies, over all workers
  int64_t read_ahead_bytes = 0;  // prefetched meanwhile, over all threads
};

class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const;
  // The number of threads that take part now. Call it from the thread that calls ParallelFor.
  int32_t num_attending() const;

  // While on, measures waiting and work (~50 ns per ParallelFor). Turning it on resets the times.
  // Call both from the thread that calls ParallelFor.
  void SetTiming(bool on);
  ThreadPoolTimes times() const;

  // The data that is read after the next ParallelFor, in n equal parts, one for each of n threads.
  // Threads that finish that ParallelFor prefetch the beginning of their part while they wait. Only
  // a hint: results do not change, and the bytes may be freed before. Holds until the next call.
  void ReadAhead(std::span<const std::byte> next);

  // Calls body(begin, end, worker) until [0, n) is covered. worker is in [0, num_threads).
  template <typename Body>
  void ParallelFor(int64_t n, int64_t grain, Body&& body) {
    using B = std::remove_reference_t<Body>;
    Run(
        n, grain,
        [](void* b, int64_t begin, int64_t end, int worker) {
          (*static_cast<B*>(b))(begin, end, worker);
        },
        const_cast<std::remove_const_t<B>*>(&body));
  }

 private:
  using RawBody = void (*)(void* body, int64_t begin, int64_t end, int worker);
  void Run(int64_t n, int64_t grain, RawBody raw, void* body);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_THREAD_POOL_H_
