#include "cc/device/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "cc/base/status.h"
#include "cc/device/internal/ahead_reader.h"
#include "cc/device/internal/core_watch.h"
#include "cc/device/spin_until.h"

// How it works. A job is a number of units; each thread has a share of them, a contiguous range
// [begin, end) in one atomic word. The owner takes pieces from the front of its share, half of the
// rest at a time; a thread whose share is empty takes pieces from the back of other shares
// likewise. (Smaller pieces cost more than they balance: some 0.2 us each, because reading weights
// starts again. With quarters a step of SmolLM2-135M takes 8 % longer if the worker is kept from
// its CPU.)
//
// Taking a piece succeeds only while the share contains it, so a worker that wakes up late finds a
// piece of the current job or nothing, and the caller never waits for a worker without a piece. (A
// barrier that all workers must reach costs a scheduler time slice, 3 to 10 ms, whenever another
// process holds a core.)
//
// A step reads weights at memory speed. Memory would idle while one thread runs the small ops
// between two matrices, and while a thread waits for the others' last pieces. So waiting threads
// prefetch the beginning of their share of the next matrix (ReadAhead), a few lines at a time.
//
// Threads are not bound to CPUs. If another process keeps a CPU busy, a thread on that CPU
// repeatedly loses it for a time slice in the middle of a piece; it then pauses (attendance.h), and
// the kernel has a CPU for each remaining thread. Waits for CPUs are checked only after one thread
// waited long for another: the path from loop to loop has no clock and no system call. (Querying
// which thread runs on which CPU and moving workers was tried: workers that left the caller's CPU
// made a step 1.5 to 2.5 times as long among many processes.)
//
// A share is on its own cache line together with a copy of the job, so that starting a worker
// transfers one line. The copies are written before the shares and do not change until `unfinished`
// is 0: a thread that holds a piece may read them.
namespace pagemill::device {
namespace {

using Clock = std::chrono::steady_clock;

// Units per thread. The last pieces are one unit each: the difference between threads at the end.
constexpr int64_t kUnitsPerThread = 32;
// Waiters yield their core at this interval: longer than the gap between two ops of a step, because
// a yield to another process costs a time slice.
constexpr Clock::duration kYieldInterval = std::chrono::microseconds(20);
// A kernel with the coarsest ticks in use (4 ms) preempts no later than this.
constexpr Clock::duration kProbe = std::chrono::milliseconds(8);

// A share's word: its first unit and its end (exclusive).
constexpr uint64_t PackShare(uint32_t begin, uint32_t end) { return uint64_t{begin} << 32 | end; }
constexpr uint32_t ShareBegin(uint64_t share) { return static_cast<uint32_t>(share >> 32); }
constexpr uint32_t ShareEnd(uint64_t share) { return static_cast<uint32_t>(share); }
constexpr bool IsEmpty(uint64_t share) { return ShareBegin(share) >= ShareEnd(share); }

struct Piece {
  int64_t begin = 0;
  int64_t end = 0;
};

// Takes half of a share, rounded up, from its front or its back. Empty if the share is empty.
Piece Take(std::atomic<uint64_t>& share, bool from_front) {
  uint64_t seen = share.load(std::memory_order_relaxed);
  while (!IsEmpty(seen)) {
    const uint32_t begin = ShareBegin(seen), end = ShareEnd(seen);
    const uint32_t taken = (end - begin + 1) / 2;
    const uint64_t rest =
        from_front ? PackShare(begin + taken, end) : PackShare(begin, end - taken);
    // acquire: makes the job's fields visible, which were written before the share.
    if (share.compare_exchange_weak(seen, rest, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return from_front ? Piece{begin, begin + taken} : Piece{end - taken, end};
    }
  }
  return {};
}

int64_t Nanoseconds(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

}  // namespace

struct ThreadPool::Impl {
  struct Job {
    RawBody raw = nullptr;
    void* body = nullptr;
    int64_t n = 0;
    int64_t units = 0;
    std::span<const std::byte> next = {};  // prefetched by threads that are done
    int32_t part = 0;                      // index of this thread's part of `next`
    int32_t parts = 1;
  };
  // The state that a thread reads to begin: one cache line.
  struct alignas(64) Share {
    std::atomic<uint64_t> units{0};
    Job job;
  };
  // A worker's state for sleeping, and its times.
  struct alignas(64) Worker {
    std::thread thread;
    std::mutex mutex;
    std::condition_variable work_cv;
    std::atomic<bool> parked{false};  // sleeps, or is about to
    std::atomic<bool> probe{false};   // must spin without work
    std::atomic<int64_t> busy_ns{0};
    std::atomic<int64_t> read_ahead_bytes{0};
    internal::AheadReader ahead;  // used by that thread only
  };

  explicit Impl(const ThreadPoolOptions& options)
      : num_threads(options.num_threads),
        spin(std::chrono::microseconds(options.spin_us)),
        read_ahead_bytes(options.num_threads > 1 ? internal::ReadAheadBytes() : 0),
        shares(std::make_unique<Share[]>(static_cast<size_t>(options.num_threads))),
        workers(std::make_unique<Worker[]>(static_cast<size_t>(options.num_threads))),
        watch(options.num_threads, options.run_delay_ns) {}

  const int32_t num_threads;
  const Clock::duration spin;
  const size_t read_ahead_bytes;            // per thread
  const std::unique_ptr<Share[]> shares;    // one per thread
  const std::unique_ptr<Worker[]> workers;  // of [0], the caller, only `ahead` is used
  std::span<const std::byte> next;          // data of the next jobs
  internal::CoreWatch watch;                // used by the caller, except as documented

  alignas(64) std::atomic<int64_t> unfinished{0};  // units
  std::atomic<bool> caller_sleeps{false};
  alignas(64) std::atomic<bool> stop{false};
  std::atomic<bool> timed{false};

  std::mutex mutex;
  std::condition_variable done_cv;
  int64_t waited_ns = 0;  // by the caller

  int64_t RunPieces(int worker);
  template <typename Ready>
  void ReadAhead(int worker, const Ready& ready);
  void WaitForOthers();
  void WorkerLoop(int worker);
  bool WaitForWork(int worker, Clock::duration spin_limit);
  void Probe(int worker);
  void Wake(Worker& worker);
};

// Takes and runs pieces until none is left; returns the number of units that it ran.
int64_t ThreadPool::Impl::RunPieces(int worker) {
  int64_t done = 0;
  // Its own share first, then those of the threads after it.
  for (int32_t i = 0; i < num_threads; ++i) {
    const int32_t owner = worker + i < num_threads ? worker + i : worker + i - num_threads;
    Share& share = shares[owner];
    for (Piece p = Take(share.units, i == 0); p.begin < p.end; p = Take(share.units, i == 0)) {
      const Job& job = share.job;
      // Even parts: units * n would overflow only for n above 2^50.
      job.raw(job.body, p.begin * job.n / job.units, p.end * job.n / job.units, worker);
      done += p.end - p.begin;
      const Job& own = shares[worker].job;
      workers[worker].ahead.Begin(own.next, own.part, own.parts, read_ahead_bytes);
    }
  }
  return done;
}

template <typename Ready>
void ThreadPool::Impl::ReadAhead(int worker, const Ready& ready) {
  const size_t bytes = workers[worker].ahead.Run(ready);
  if (bytes == 0 || !timed.load(std::memory_order_relaxed)) return;
  workers[worker].read_ahead_bytes.fetch_add(static_cast<int64_t>(bytes),
                                             std::memory_order_relaxed);
}

// The caller waits for pieces that workers hold. After a short spin it sleeps: the kernel can then
// move a worker that lost its core to this one.
void ThreadPool::Impl::WaitForOthers() {
  const auto done = [this] { return unfinished.load(std::memory_order_acquire) == 0; };
  if (done()) return;
  const bool measure = timed.load(std::memory_order_relaxed);
  const Clock::time_point start = measure ? Clock::now() : Clock::time_point();
  ReadAhead(/*worker=*/0, done);
  if (!SpinUntil(spin, done, kYieldInterval)) {
    const Clock::time_point asleep = Clock::now();
    {
      std::unique_lock lock(mutex);
      caller_sleeps.store(true);
      done_cv.wait(lock, [this] { return unfinished.load() == 0; });
      caller_sleeps.store(false);
    }
    watch.CallerWaited(Nanoseconds(Clock::now() - asleep));
  }
  if (measure) waited_ns += Nanoseconds(Clock::now() - start);
}

// Returns when its share may hold work; returns false when the pool stops.
bool ThreadPool::Impl::WaitForWork(int worker, Clock::duration spin_limit) {
  const std::atomic<uint64_t>& share = shares[worker].units;
  Worker& self = workers[worker];
  const auto ready = [&] {
    return !IsEmpty(share.load(std::memory_order_relaxed)) || stop.load(std::memory_order_relaxed);
  };
  ReadAhead(worker, ready);
  if (!SpinUntil(spin_limit, ready, kYieldInterval)) {
    std::unique_lock lock(self.mutex);
    // seq_cst pairs with Run(): either Run() sees the worker parked, or the worker sees its share.
    self.parked.store(true);
    self.work_cv.wait(lock, [&] {
      return !self.parked.load() || self.probe.load() || !IsEmpty(share.load()) || stop.load();
    });
    self.parked.store(false);
  }
  return !stop.load();
}

// Spins without work and without yielding, for as long as the kernel takes to give another process
// its turn: if another process wants this core, this thread has had to wait.
void ThreadPool::Impl::Probe(int worker) {
  const auto stopped = [this] { return stop.load(std::memory_order_relaxed); };
  watch.Probe(worker, [&] { SpinUntil(kProbe, stopped, /*yield_interval=*/2 * kProbe); });
  workers[worker].probe.store(false);
}

// A parked worker spins again even if its work is done by then, because more work will follow.
void ThreadPool::Impl::Wake(Worker& worker) {
  {
    std::lock_guard lock(worker.mutex);
    worker.parked.store(false);
  }
  worker.work_cv.notify_one();
}

void ThreadPool::Impl::WorkerLoop(int worker) {
  // Signals are delivered to the host's threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), ("pm-compute-" + std::to_string(worker)).c_str());
  watch.SetThreadId(worker, static_cast<pid_t>(::syscall(SYS_gettid)));
  Clock::duration spin_limit = spin;
  while (WaitForWork(worker, spin_limit)) {
    // After a probe it sleeps: an absent worker has no reason to spin.
    const bool probed = workers[worker].probe.load();
    spin_limit = probed ? Clock::duration::zero() : spin;
    if (probed) {
      Probe(worker);
      continue;
    }
    const bool measure = timed.load(std::memory_order_relaxed);
    const Clock::time_point start = measure ? Clock::now() : Clock::time_point();
    const int64_t done = RunPieces(worker);
    if (done == 0) continue;
    if (measure) {
      workers[worker].busy_ns.fetch_add(Nanoseconds(Clock::now() - start),
                                        std::memory_order_relaxed);
    }
    // seq_cst pairs with `caller_sleeps`: either the worker sees that the caller sleeps, or the
    // caller sees 0.
    if (unfinished.fetch_sub(done) == done && caller_sleeps.load()) {
      std::lock_guard lock(mutex);
      done_cv.notify_one();
    }
  }
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  PAGEMILL_CHECK(options.num_threads >= 1);
  PAGEMILL_CHECK(options.spin_us >= 0);
  impl_ = std::make_unique<Impl>(options);
  for (int worker = 1; worker < options.num_threads; ++worker) {
    impl_->workers[worker].thread =
        std::thread([impl = impl_.get(), worker] { impl->WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true);
  for (int worker = 1; worker < num_threads(); ++worker) {
    impl_->Wake(impl_->workers[worker]);
    impl_->workers[worker].thread.join();
  }
}

int32_t ThreadPool::num_threads() const { return impl_->num_threads; }

int32_t ThreadPool::num_attending() const {
  return static_cast<int32_t>(impl_->watch.attending().size());
}

void ThreadPool::Run(int64_t n, int64_t grain, RawBody raw, void* body) {
  if (n <= 0) return;
  Impl& impl = *impl_;
  if (!impl.watch.all_attend()) {
    impl.watch.Advance([&impl](int32_t thread) {
      impl.workers[thread].probe.store(true);
      impl.Wake(impl.workers[thread]);
    });
  }
  const std::span<const int32_t> attending = impl.watch.attending();
  const auto threads = static_cast<int64_t>(attending.size());
  const int64_t units = std::min(n / std::max<int64_t>(grain, 1), threads * kUnitsPerThread);
  if (units <= 1 || threads == 1) {
    raw(body, 0, n, /*worker=*/0);
    return;
  }
  Impl::Job job{.raw = raw, .body = body, .n = n, .units = units, .next = impl.next};
  job.parts = static_cast<int32_t>(threads);
  impl.unfinished.store(units, std::memory_order_relaxed);
  // A thread that steals reads the job beside the share. All jobs are written before the first
  // share is: no worker can hold a piece yet.
  for (job.part = 0; job.part < job.parts; ++job.part) {
    impl.shares[attending[static_cast<size_t>(job.part)]].job = job;
  }
  // The caller's share is first and includes the odd units, because workers start later.
  const auto first = [&](int64_t t) {
    return static_cast<uint32_t>((t * units + threads - 1) / threads);
  };
  bool others_slept = false;
  for (int64_t t = 1; t < threads; ++t) {
    if (first(t) == first(t + 1)) continue;
    const int32_t worker = attending[static_cast<size_t>(t)];
    impl.shares[worker].units.store(PackShare(first(t), first(t + 1)));
    if (!impl.workers[worker].parked.load()) continue;
    impl.Wake(impl.workers[worker]);
    others_slept = true;
  }
  impl.shares[0].units.store(PackShare(0, first(1)), std::memory_order_release);
  const int64_t done = impl.RunPieces(/*worker=*/0);
  // Relaxed suffices for this thread's units; the load that sees the others' units acquires their
  // results.
  impl.unfinished.fetch_sub(done, std::memory_order_relaxed);
  impl.WaitForOthers();
  if (others_slept) impl.watch.OthersWaited();
}

void ThreadPool::ReadAhead(std::span<const std::byte> next) { impl_->next = next; }

void ThreadPool::SetTiming(bool on) {
  impl_->timed = on;
  if (!on) return;
  impl_->waited_ns = 0;
  for (int worker = 0; worker < num_threads(); ++worker) {
    impl_->workers[worker].busy_ns = 0;
    impl_->workers[worker].read_ahead_bytes = 0;
  }
}

ThreadPoolTimes ThreadPool::times() const {
  ThreadPoolTimes times{.caller_waited_s = 1e-9 * static_cast<double>(impl_->waited_ns)};
  for (int worker = 0; worker < num_threads(); ++worker) {
    const Impl::Worker& of = impl_->workers[worker];
    times.workers_busy_s += 1e-9 * static_cast<double>(of.busy_ns.load());
    times.read_ahead_bytes += of.read_ahead_bytes.load();
  }
  return times;
}

}  // namespace pagemill::device
