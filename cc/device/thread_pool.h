// File: cc/device/thread_pool.h
// The one pool of compute threads of an engine. The calling thread takes part as worker 0.
//
//   ThreadPool pool({.num_threads = 2});
//   pool.ParallelFor(rows, /*grain=*/8, [&](int64_t begin, int64_t end, int worker) { ... });
//
// ParallelFor gives each thread a run of neighbours of [0, n), from which it takes chunks of at
// least `grain`; who is done first helps the others. It returns when all is done, and never waits
// for a thread that has taken no chunk. Which worker runs which chunk is not fixed, so a body must
// give the same result whichever worker runs it (every kernel here does: an output element is
// computed by one chunk) and must not wait for another chunk to begin: one thread may run them all.
// Below 2 * grain no worker is woken: the caller runs it alone. Workers spin for `spin_us` after
// work, then park, so an idle engine uses no CPU. A thread that other processes keep from its core
// with work in its hands stays away until it has a core again (attendance.h), so that the others do
// not wait for it. One ParallelFor at a time (the engine thread); not reentrant.
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
  // How long thread `i` has waited for a core so far; null: what the kernel says (run_delay.h).
  std::function<std::optional<int64_t>(int32_t thread)> run_delay_ns = nullptr;
};

// Sums since timing began.
struct ThreadPoolTimes {
  double caller_waited_s = 0;    // for chunks that workers held
  double workers_busy_s = 0;     // in bodies, over all workers
  int64_t read_ahead_bytes = 0;  // asked for meanwhile, over all threads
};

class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const;
  // Those that take part now. From the thread that calls ParallelFor.
  int32_t num_attending() const;

  // While on, waiting and work are timed (~50 ns a ParallelFor). Turning it on resets the times.
  // Both from the thread that calls ParallelFor.
  void SetTiming(bool on);
  ThreadPoolTimes times() const;

  // What is read once the next ParallelFor is over, from the front of n even parts, one for each
  // of the n threads. Threads that are done with that ParallelFor bring the beginning of their
  // parts into their caches while they wait. A hint: results are the same, and nothing happens if
  // the bytes are gone by then. Holds until it is given again.
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
