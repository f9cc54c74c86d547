#include "cc/device/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace pagemill::device {
namespace {

// Reports that no thread ever waits for its core: for bodies that need all threads of the pool.
std::optional<int64_t> Undisturbed(int32_t) { return std::nullopt; }

// Every index is visited once, for all values of n, grain and the number of threads.
TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int32_t threads : {1, 2, 3, 5}) {
    ThreadPool pool({.num_threads = threads});
    for (int64_t n : {0, 1, 2, 3, 7, 31, 32, 33, 97, 1000, 4099}) {
      for (int64_t grain : {1, 2, 5, 64, 5000}) {
        std::vector<std::atomic<int>> visits(n);
        pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end, int worker) {
          EXPECT_LE(0, begin);
          EXPECT_LT(begin, end);
          EXPECT_LE(end, n);
          EXPECT_GE(end - begin, std::min(grain, n));
          EXPECT_GE(worker, 0);
          EXPECT_LT(worker, threads);
          for (int64_t i = begin; i < end; ++i) visits[i].fetch_add(1);
        });
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(visits[i].load(), 1) << n << " " << grain;
      }
    }
  }
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool({.num_threads = 2});
  pool.ParallelFor(0, 1, [](int64_t, int64_t, int) { FAIL(); });
  pool.ParallelFor(-3, 1, [](int64_t, int64_t, int) { FAIL(); });
}

// Plain memory written inside one call is readable after it and inside the next one: under the
// thread sanitizer this is the test of the hand-over.
TEST(ThreadPool, ThousandsOfTinyCallsSeeEachOthersWrites) {
  ThreadPool pool({.num_threads = 3, .spin_us = 20});
  std::vector<int64_t> values(13, 0);
  constexpr int kCalls = 5000;
  for (int call = 0; call < kCalls; ++call) {
    pool.ParallelFor(static_cast<int64_t>(values.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[i] += i + 1;
    });
  }
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], static_cast<int64_t>(i + 1) * kCalls);
  }
}

// Workers that have parked are woken, and the work is shared: no chunk ends before two threads
// have met, so one thread alone could not finish.
TEST(ThreadPool, ParkedWorkersWakeUp) {
  ThreadPool pool({.num_threads = 2, .spin_us = 0, .run_delay_ns = Undisturbed});
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> inside{0};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });
    ASSERT_EQ(inside.load(), 2);
  }
}

// The caller sleeps if a worker's chunk takes longer than the spin, and wakes up when it ends.
TEST(ThreadPool, CallerWaitsForSlowWorkers) {
  ThreadPool pool({.num_threads = 2, .spin_us = 10, .run_delay_ns = Undisturbed});
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> finished{0};
    std::atomic<bool> worker_has_chunk{false};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int worker) {
      if (worker == 0) {
        while (!worker_has_chunk.load()) std::this_thread::yield();
      } else {
        worker_has_chunk.store(true);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      finished.fetch_add(1);
    });
    ASSERT_EQ(finished.load(), 2);
  }
}

// An idle pool uses no processor time.
TEST(ThreadPool, IdleWorkersPark) {
  ThreadPool pool({.num_threads = 4, .spin_us = 50});
  pool.ParallelFor(64, 1, [](int64_t, int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double busy_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy_s, 0.05);  // four spinning workers would use 0.2 s a core
}

// The caller does not wait for a worker that holds no chunk: it takes over the rest of the worker's
// share while the worker is delayed in the one chunk that it took.
TEST(ThreadPool, TheCallerTakesWhatWorkersDoNot) {
  ThreadPool pool({.num_threads = 2, .run_delay_ns = Undisturbed});
  std::atomic<int64_t> by_caller{0};
  std::atomic<bool> worker_is_inside{false};
  pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end, int worker) {
    if (worker == 0) {
      while (!worker_is_inside.load()) std::this_thread::yield();
      by_caller.fetch_add(end - begin);
    } else {
      worker_is_inside.store(true);
      while (by_caller.load() < 64 - (end - begin)) std::this_thread::yield();
    }
  });
  EXPECT_GE(by_caller.load(), 48);
}

// A thread takes consecutive chunks of its share: it streams its own part.
TEST(ThreadPool, SharesAreRunsOfNeighbours) {
  ThreadPool pool({.num_threads = 2, .run_delay_ns = Undisturbed});
  constexpr int64_t kItems = 1024;
  for (int round = 0; round < 20; ++round) {
    std::vector<int> owner(kItems, -1);
    std::atomic<int> inside{0};
    pool.ParallelFor(kItems, 1, [&](int64_t begin, int64_t end, int worker) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();  // until both have begun
      std::fill(owner.begin() + begin, owner.begin() + end, worker);
    });
    EXPECT_EQ(owner.front(), 0);
    EXPECT_EQ(owner[kItems / 2], 1);
    int changes = 0;
    for (int64_t i = 1; i < kItems; ++i) changes += owner[i] != owner[i - 1] ? 1 : 0;
    EXPECT_LE(changes, 2);  // the middle, and where one of them helped the other
  }
}

TEST(ThreadPool, SmallLoopsRunOnTheCallerAlone) {
  ThreadPool pool({.num_threads = 2});
  for (int64_t n : {1, 8, 15}) {
    int calls = 0;
    pool.ParallelFor(n, 8, [&](int64_t begin, int64_t end, int worker) {
      EXPECT_EQ(worker, 0);
      EXPECT_EQ(end - begin, n);
      ++calls;
    });
    EXPECT_EQ(calls, 1);
  }
}

TEST(ThreadPool, TimesWaitingAndWork) {
  ThreadPool pool({.num_threads = 2, .run_delay_ns = Undisturbed});
  const auto run = [&pool] {
    std::atomic<bool> worker_is_inside{false};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int worker) {
      if (worker == 0) {
        while (!worker_is_inside.load()) std::this_thread::yield();
      } else {
        worker_is_inside.store(true);
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
    });
  };
  run();
  EXPECT_EQ(pool.times().workers_busy_s, 0);
  pool.SetTiming(true);
  run();
  pool.SetTiming(false);
  run();
  const ThreadPoolTimes times = pool.times();
  EXPECT_GT(times.workers_busy_s, 0.19);
  EXPECT_LT(times.workers_busy_s, 10);
  EXPECT_GT(times.caller_waited_s, 0.015);
  pool.SetTiming(true);
  EXPECT_EQ(pool.times().caller_waited_s, 0);
}

// Bytes that both threads of a pool prefetch once each has waited for the other.
int64_t ReadAheadBytes(ThreadPool& pool, std::span<const std::byte> next, int64_t expected) {
  pool.SetTiming(true);
  pool.ReadAhead(next);
  std::atomic<bool> worker_is_inside{false};
  pool.ParallelFor(2, 1, [&](int64_t, int64_t, int worker) {
    if (worker == 0) {
      while (!worker_is_inside.load()) std::this_thread::yield();
    } else {
      worker_is_inside.store(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (pool.times().read_ahead_bytes < expected && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  return pool.times().read_ahead_bytes;
}

TEST(ThreadPool, WhoWaitsReadsAheadOnceAndNotMoreThanACacheHolds) {
  ThreadPool pool({.num_threads = 2, .run_delay_ns = Undisturbed});
  const std::vector<std::byte> few(10001), many(8 << 20);
  EXPECT_EQ(ReadAheadBytes(pool, few, 10001), 10001);
  EXPECT_EQ(ReadAheadBytes(pool, few, 0), 0) << "nothing new";
  EXPECT_EQ(ReadAheadBytes(pool, {}, 0), 0);
  const int64_t most = ReadAheadBytes(pool, many, 2 * (64 << 10));
  EXPECT_GE(most, 2 * (64 << 10));
  EXPECT_LE(most, 2 * (512 << 10));
}

TEST(ThreadPool, ReadingAheadOfMemoryThatIsGoneDoesNoHarm) {
  ThreadPool pool({.num_threads = 2});
  std::vector<int64_t> sums(64);
  for (int64_t round = 0; round < 2000; ++round) {
    const std::vector<std::byte> gone(4096 + round);
    pool.ReadAhead(gone);
    pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sums[i] += i;
    });
  }
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(sums[i], 2000 * i);
}

// A pool of two whose worker reports a growing wait for its core while `busy` is set.
class ContestedPool {
 public:
  std::atomic<bool> busy{true};

  // Runs loops in which the caller waits for the worker, until `attending` threads take part.
  void RunUntil(int32_t attending) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (pool_.num_attending() != attending) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      pool_.ParallelFor(2, 1, [](int64_t, int64_t, int worker) {
        if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(6));
      });
    }
  }
  ThreadPool& pool() { return pool_; }

 private:
  std::atomic<int64_t> waited_ns_{0};
  ThreadPool pool_{{.num_threads = 2, .run_delay_ns = [this](int32_t thread) {
                      if (thread == 1 && busy.load()) waited_ns_.fetch_add(6'000'000);
                      return std::optional(thread == 1 ? waited_ns_.load() : 0);
                    }}};
};

TEST(ThreadPool, AWorkerWithoutACoreStaysAwayAndComesBack) {
  ContestedPool contested;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(contested.pool().num_attending(), 2);
    contested.busy = true;
    contested.RunUntil(1);
    int calls = 0;
    contested.pool().ParallelFor(64, 1, [&calls](int64_t begin, int64_t end, int worker) {
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, 64);
      EXPECT_EQ(worker, 0);
      ++calls;
    });
    EXPECT_EQ(calls, 1);
    contested.busy = false;
    contested.RunUntil(2);
  }
}

TEST(ThreadPool, StopsWhileAWorkerIsAway) {
  for (int round = 0; round < 5; ++round) {
    ContestedPool contested;
    contested.RunUntil(1);
    // Wait until a probe may have begun.
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * round));
    contested.pool().ParallelFor(64, 1, [](int64_t, int64_t, int) {});
  }
}

TEST(ThreadPool, WhereTheSystemDoesNotCountWaitsNobodyStaysAway) {
  ThreadPool pool({.num_threads = 2, .run_delay_ns = Undisturbed});
  for (int round = 0; round < 10; ++round) {
    pool.ParallelFor(2, 1, [](int64_t, int64_t, int worker) {
      if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    });
    ASSERT_EQ(pool.num_attending(), 2);
  }
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool({.num_threads = 1 + i % 4});
    EXPECT_EQ(pool.num_threads(), 1 + i % 4);
  }
}

}  // namespace
}  // namespace pagemill::device
