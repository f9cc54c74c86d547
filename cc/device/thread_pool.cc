#include "cc/device/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "cc/base/status.h"
#include "cc/device/cache_sizes.h"
#include "cc/device/spin_until.h"

// How it works. A job is a number of units; each thread has a share of them, a run of neighbours
// [begin, end) in one atomic word. Its owner takes pieces from the front of its share, half of what
// is left at a time; who has nothing left takes from the back of others' shares likewise. (Smaller
// pieces cost more than they balance: some 0.2 us each, because reading weights starts anew. With
// quarters a step of SmolLM2-135M takes 8 % longer where the worker is kept from its CPU.)
//
// Taking a piece succeeds only while the share holds it, so a worker that wakes up late finds a
// piece of the current job or nothing, and the caller never waits for a worker that has no piece.
// (A barrier that all workers have to reach costs a scheduler time slice, 3 to 10 ms, whenever
// another process holds a core.)
//
// A step reads weights at the speed of memory, which would rest while one thread does the small ops
// between two matrices alone, and while a thread waits for the others' last pieces. So who waits
// asks for the beginning of its share of the next matrix (ReadAhead), a few lines at a time.
//
// Threads are not bound to CPUs. Where other processes want all CPUs, the kernel leaves caller and
// worker on one, and a step takes about as long as on one thread; workers that left the caller's
// CPU made it 1.5 to 2.5 times as long, because the caller then waited for pieces whose CPU others
// had the turn of. A worker that sleeps for a millisecond where it finds itself on the caller's CPU
// makes it 10 to 20 % longer among many processes: the engine then has one thread to run, not two.
//
// A share lies on a cache line of its own together with a copy of the job, so that starting a
// worker costs one line handed over. The copies are written before the shares, and stay as they are
// until `unfinished` is 0: whoever holds a piece may read them.
namespace pagemill::device {
namespace {

using Clock = std::chrono::steady_clock;

// Units per thread. The last pieces are a unit each: what threads may differ by at the end.
constexpr int64_t kUnitsPerThread = 32;
// Waiters offer their core to others once in so long: longer than what lies between two ops of a
// step, because who offers a core that another process wants is without it for a time slice.
constexpr Clock::duration kYieldInterval = std::chrono::microseconds(20);

// At most so much of its part of what comes next does a thread ask for: half of its share of the
// second-level cache, so that what the current op still needs stays there; within these bounds, the
// lower one where the system does not tell.
constexpr size_t kLeastReadAheadBytes = 64 << 10;
constexpr size_t kMostReadAheadBytes = 512 << 10;
// Between two looks at whether there is work: some 10 ns.
constexpr size_t kReadAheadStep = 512;
constexpr size_t kLineBytes = 64;

// A share's word: its first unit, and the one after its last.
constexpr uint64_t PackShare(uint32_t begin, uint32_t end) { return uint64_t{begin} << 32 | end; }
constexpr uint32_t ShareBegin(uint64_t share) { return static_cast<uint32_t>(share >> 32); }
constexpr uint32_t ShareEnd(uint64_t share) { return static_cast<uint32_t>(share); }
constexpr bool IsEmpty(uint64_t share) { return ShareBegin(share) >= ShareEnd(share); }

struct Piece {
  int64_t begin = 0;
  int64_t end = 0;
};

// Takes half of what a share holds, rounded up: from its front or from its back. Empty where
// it holds nothing.
Piece Take(std::atomic<uint64_t>& share, bool from_front) {
  uint64_t seen = share.load(std::memory_order_relaxed);
  while (!IsEmpty(seen)) {
    const uint32_t begin = ShareBegin(seen), end = ShareEnd(seen);
    const uint32_t taken = (end - begin + 1) / 2;
    const uint64_t rest =
        from_front ? PackShare(begin + taken, end) : PackShare(begin, end - taken);
    // acquire: of the job's fields, written before the share.
    if (share.compare_exchange_weak(seen, rest, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return from_front ? Piece{begin, begin + taken} : Piece{end - taken, end};
    }
  }
  return {};
}

// What a thread still has to ask for of its part of what comes next.
class AheadReader {
 public:
  // Starts anew where `next` is not what it was before.
  void Begin(std::span<const std::byte> next, int64_t thread, int64_t threads, size_t most) {
    if (next.data() == next_.data() && next.size() == next_.size()) return;
    next_ = next;
    const size_t begin = next.size() * static_cast<size_t>(thread) / static_cast<size_t>(threads);
    const size_t end = next.size() * static_cast<size_t>(thread + 1) / static_cast<size_t>(threads);
    rest_ = next.subspan(begin, std::min(end - begin, most));
  }

  // Asks for it until `ready()`; returns for how many bytes.
  template <typename Ready>
  size_t Run(const Ready& ready) {
    const size_t before = rest_.size();
    while (!rest_.empty() && !ready()) {
      const size_t step = std::min(rest_.size(), kReadAheadStep);
      for (size_t i = 0; i < step; i += kLineBytes) __builtin_prefetch(rest_.data() + i, 0, 2);
      rest_ = rest_.subspan(step);
    }
    return before - rest_.size();
  }

 private:
  std::span<const std::byte> next_;
  std::span<const std::byte> rest_;
};

size_t ReadAheadBytes() {
  size_t bytes = kLeastReadAheadBytes;
  for (const CacheSize& cache : DataCaches()) {
    if (cache.level == 2) bytes = static_cast<size_t>(cache.bytes / std::max(cache.cpus, 1) / 2);
  }
  return std::clamp(bytes, kLeastReadAheadBytes, kMostReadAheadBytes);
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
    std::span<const std::byte> next = {};  // to be read ahead by who is done with it
  };
  // What a thread reads to begin: one cache line.
  struct alignas(64) Share {
    std::atomic<uint64_t> units{0};
    Job job;
  };
  // Of a worker, for when it sleeps, and its times.
  struct alignas(64) Worker {
    std::thread thread;
    std::mutex mutex;
    std::condition_variable work_cv;
    std::atomic<bool> parked{false};  // sleeps, or is about to
    std::atomic<int64_t> busy_ns{0};
    std::atomic<int64_t> read_ahead_bytes{0};
    AheadReader ahead;  // that thread's alone
  };

  explicit Impl(const ThreadPoolOptions& options)
      : num_threads(options.num_threads),
        spin(std::chrono::microseconds(options.spin_us)),
        read_ahead_bytes(options.num_threads > 1 ? ReadAheadBytes() : 0),
        shares(std::make_unique<Share[]>(static_cast<size_t>(options.num_threads))),
        workers(std::make_unique<Worker[]>(static_cast<size_t>(options.num_threads))) {}

  const int32_t num_threads;
  const Clock::duration spin;
  const size_t read_ahead_bytes;            // of a thread
  const std::unique_ptr<Share[]> shares;    // of each thread
  const std::unique_ptr<Worker[]> workers;  // of [0], the caller, only what is read ahead
  std::span<const std::byte> next;          // of jobs to come

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
  bool WaitForWork(int worker);
  void Wake(Worker& worker);
};

// Takes pieces and runs them until there is none to take; returns how many units that were.
int64_t ThreadPool::Impl::RunPieces(int worker) {
  int64_t done = 0;
  // Its own share first, then those of the threads after it.
  for (int32_t i = 0; i < num_threads; ++i) {
    const int32_t owner = worker + i < num_threads ? worker + i : worker + i - num_threads;
    Share& share = shares[owner];
    for (Piece p = Take(share.units, i == 0); p.begin < p.end; p = Take(share.units, i == 0)) {
      const Job& job = share.job;
      // Even parts: units * n would overflow only for n beyond 2^50.
      job.raw(job.body, p.begin * job.n / job.units, p.end * job.n / job.units, worker);
      done += p.end - p.begin;
      workers[worker].ahead.Begin(job.next, worker, num_threads, read_ahead_bytes);
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

// The caller waits for pieces that workers hold. It sleeps rather than spins for long: a worker
// that lost its core to another process can then be moved to this one.
void ThreadPool::Impl::WaitForOthers() {
  const auto done = [this] { return unfinished.load(std::memory_order_acquire) == 0; };
  if (done()) return;
  const bool measure = timed.load(std::memory_order_relaxed);
  const Clock::time_point start = measure ? Clock::now() : Clock::time_point();
  ReadAhead(/*worker=*/0, done);
  if (!SpinUntil(spin, done, kYieldInterval)) {
    std::unique_lock lock(mutex);
    caller_sleeps.store(true);
    done_cv.wait(lock, [this] { return unfinished.load() == 0; });
    caller_sleeps.store(false);
  }
  if (measure) waited_ns += Nanoseconds(Clock::now() - start);
}

// Returns when there may be something in its share; false when the pool stops.
bool ThreadPool::Impl::WaitForWork(int worker) {
  const std::atomic<uint64_t>& share = shares[worker].units;
  const auto ready = [&] {
    return !IsEmpty(share.load(std::memory_order_relaxed)) || stop.load(std::memory_order_relaxed);
  };
  ReadAhead(worker, ready);
  if (!SpinUntil(spin, ready, kYieldInterval)) {
    Worker& self = workers[worker];
    std::unique_lock lock(self.mutex);
    // seq_cst pairs with Run(): either it sees us parked, or we see our share.
    self.parked.store(true);
    self.work_cv.wait(lock,
                      [&] { return !self.parked.load() || !IsEmpty(share.load()) || stop.load(); });
    self.parked.store(false);
  }
  return !stop.load();
}

// A parked worker spins again, even if what it was woken for is done by then: more will follow.
void ThreadPool::Impl::Wake(Worker& worker) {
  {
    std::lock_guard lock(worker.mutex);
    worker.parked.store(false);
  }
  worker.work_cv.notify_one();
}

void ThreadPool::Impl::WorkerLoop(int worker) {
  // Signals are for the host's threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), ("pm-compute-" + std::to_string(worker)).c_str());
  while (WaitForWork(worker)) {
    const bool measure = timed.load(std::memory_order_relaxed);
    const Clock::time_point start = measure ? Clock::now() : Clock::time_point();
    const int64_t done = RunPieces(worker);
    if (done == 0) continue;
    if (measure) {
      workers[worker].busy_ns.fetch_add(Nanoseconds(Clock::now() - start),
                                        std::memory_order_relaxed);
    }
    // seq_cst pairs with `caller_sleeps`: either we see that the caller sleeps, or it sees 0.
    if (unfinished.fetch_sub(done) == done && caller_sleeps.load()) {
      std::lock_guard lock(mutex);
      done_cv.notify_one();
    }
  }
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  PM_CHECK(options.num_threads >= 1);
  PM_CHECK(options.spin_us >= 0);
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

void ThreadPool::Run(int64_t n, int64_t grain, RawBody raw, void* body) {
  if (n <= 0) return;
  Impl& impl = *impl_;
  const int64_t threads = impl.num_threads;
  const int64_t units = std::min(n / std::max<int64_t>(grain, 1), threads * kUnitsPerThread);
  if (units <= 1 || threads == 1) {
    raw(body, 0, n, /*worker=*/0);
    return;
  }
  const Impl::Job job{.raw = raw, .body = body, .n = n, .units = units, .next = impl.next};
  impl.unfinished.store(units, std::memory_order_relaxed);
  // Who steals reads the job beside the share that it steals from. All jobs are in place before the
  // first share is: no worker can hold a piece yet.
  for (int64_t t = 0; t < threads; ++t) impl.shares[t].job = job;
  // The caller's share comes first, and with it the odd units: workers start later.
  const auto first = [&](int64_t t) {
    return static_cast<uint32_t>((t * units + threads - 1) / threads);
  };
  for (int64_t t = 1; t < threads; ++t) {
    if (first(t) == first(t + 1)) continue;
    impl.shares[t].units.store(PackShare(first(t), first(t + 1)));
    if (impl.workers[t].parked.load()) impl.Wake(impl.workers[t]);
  }
  impl.shares[0].units.store(PackShare(0, first(1)), std::memory_order_release);
  const int64_t done = impl.RunPieces(/*worker=*/0);
  // Relaxed would do for the units of this thread; what others did is acquired with theirs.
  impl.unfinished.fetch_sub(done, std::memory_order_relaxed);
  impl.WaitForOthers();
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
