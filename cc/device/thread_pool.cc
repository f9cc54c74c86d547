#include "cc/device/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/spin_until.h"

// How it works. A job is a set of chunks; `unclaimed` counts those nobody has taken and
// `unfinished` those not yet done. Any thread takes a chunk by lowering `unclaimed` from a value
// above 0, which can only succeed while the current job is open, so a worker that wakes up late
// finds either a chunk or nothing, and the caller never waits for a worker that has no chunk. (A
// barrier that all workers have to reach costs a scheduler time slice, 3 to 10 ms, whenever another
// process holds a core.) The job's fields are written before `unclaimed` is raised and stay until
// `unfinished` is 0, so whoever holds a chunk may read them.
namespace pagemill::device {
namespace {

using Clock = std::chrono::steady_clock;

// Chunks per thread: enough that a thread which loses its core for a while delays little.
constexpr int64_t kChunksPerThread = 16;

}  // namespace

struct ThreadPool::Impl {
  // The current job; see the top of the file for who may touch it when.
  RawBody raw = nullptr;
  void* body = nullptr;
  int64_t n = 0;
  int64_t chunks = 0;

  alignas(64) std::atomic<int64_t> unclaimed{0};
  alignas(64) std::atomic<int64_t> unfinished{0};
  alignas(64) std::atomic<int32_t> parked{0};  // workers that sleep, or are about to
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};

  std::mutex mutex;
  std::condition_variable work_cv;
  std::condition_variable done_cv;
  Clock::duration spin{};
  std::vector<std::thread> threads;

  void RunChunks(int worker);
  void WaitForOthers();
  void WorkerLoop(int worker);
  bool WaitForWork();
};

// Takes chunks and runs them until none is left to take.
void ThreadPool::Impl::RunChunks(int worker) {
  int64_t left = unclaimed.load(std::memory_order_relaxed);
  while (left > 0) {
    if (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
      continue;
    }
    const int64_t chunk = chunks - left;
    // Even parts: chunk * n would overflow only for n beyond 2^50.
    const int64_t begin = chunk * n / chunks;
    const int64_t end = (chunk + 1) * n / chunks;
    raw(body, begin, end, worker);
    // seq_cst pairs with `caller_sleeps`: either we see that the caller sleeps, or it sees 0.
    if (unfinished.fetch_sub(1) == 1 && caller_sleeps.load()) {
      std::lock_guard lock(mutex);
      done_cv.notify_one();
    }
    left = unclaimed.load(std::memory_order_relaxed);
  }
}

// The caller waits for chunks that workers hold. It sleeps rather than spins for long: a worker
// that lost its core to another process can then be moved to this one.
void ThreadPool::Impl::WaitForOthers() {
  const auto done = [this] { return unfinished.load(std::memory_order_acquire) == 0; };
  if (SpinUntil(spin, done)) return;
  std::unique_lock lock(mutex);
  caller_sleeps.store(true);
  done_cv.wait(lock, [this] { return unfinished.load() == 0; });
  caller_sleeps.store(false);
}

// Returns when there is a chunk to take; false when the pool stops.
bool ThreadPool::Impl::WaitForWork() {
  const auto ready = [this] {
    return unclaimed.load(std::memory_order_relaxed) > 0 || stop.load(std::memory_order_relaxed);
  };
  if (!SpinUntil(spin, ready)) {
    std::unique_lock lock(mutex);
    // seq_cst pairs with Run(): either it sees us parked, or we see its chunks.
    parked.fetch_add(1);
    work_cv.wait(lock, [this] { return unclaimed.load() > 0 || stop.load(); });
    parked.fetch_sub(1);
  }
  return !stop.load();
}

void ThreadPool::Impl::WorkerLoop(int worker) {
  // Signals are for the host's threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), ("pm-compute-" + std::to_string(worker)).c_str());
  while (WaitForWork()) RunChunks(worker);
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) : impl_(std::make_unique<Impl>()) {
  PM_CHECK(options.num_threads >= 1);
  PM_CHECK(options.spin_us >= 0);
  impl_->spin = std::chrono::microseconds(options.spin_us);
  impl_->threads.reserve(options.num_threads - 1);
  for (int worker = 1; worker < options.num_threads; ++worker) {
    impl_->threads.emplace_back([impl = impl_.get(), worker] { impl->WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop.store(true);
  }
  impl_->work_cv.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int32_t ThreadPool::num_threads() const { return static_cast<int32_t>(impl_->threads.size()) + 1; }

void ThreadPool::Run(int64_t n, int64_t grain, RawBody raw, void* body) {
  if (n <= 0) return;
  const int64_t wanted = n / std::max<int64_t>(grain, 1);
  const int64_t chunks = std::min(wanted, num_threads() * kChunksPerThread);
  if (chunks <= 1 || impl_->threads.empty()) {
    raw(body, 0, n, /*worker=*/0);
    return;
  }
  impl_->raw = raw;
  impl_->body = body;
  impl_->n = n;
  impl_->chunks = chunks;
  impl_->unfinished.store(chunks, std::memory_order_relaxed);
  impl_->unclaimed.store(chunks);
  if (impl_->parked.load() > 0) {
    // Taking the lock orders this after the parked worker's last look at `unclaimed`.
    { std::lock_guard lock(impl_->mutex); }
    impl_->work_cv.notify_all();
  }
  impl_->RunChunks(/*worker=*/0);
  impl_->WaitForOthers();
}

}  // namespace pagemill::device
