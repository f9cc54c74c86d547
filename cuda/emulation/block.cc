#include "cuda/emulation/block.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

namespace pagemill::gpu::emulation {
namespace {

// Launches have turns, in the order in which they came or passed theirs.
class Turns {
 public:
  void Take() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_++;
    changed_.wait(lock, [&] { return serving_ == ticket; });
  }
  void Give() {
    {
      std::lock_guard lock(mutex_);
      ++serving_;
    }
    changed_.notify_all();
  }
  // Takes the next turn behind all launches that wait for one; false if none does.
  bool Pass() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_++;
    if (++serving_ == ticket) return false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return serving_ == ticket; });
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0, serving_ = 0;
};

Turns turns;
uint64_t blocks_so_far = 0;  // guarded by `turns`

// How long a launch that waits for others, which are not launched yet, leaves the processor.
constexpr std::chrono::microseconds kIdle{20};

// Threads that no launch uses, which keep their stacks. Guarded by `turns`.
std::vector<std::vector<std::unique_ptr<Thread>>>& IdleThreads() {
  static std::vector<std::vector<std::unique_ptr<Thread>>> threads;
  return threads;
}

// A warp goes on after its lanes met with this probability: it may get far ahead of the others.
constexpr double kSameWarp = 0.75;

bool IsSamePlace(const Location& a, const Location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string ToString(const Location& location) {
  return std::string(location.file_name()) + ":" + std::to_string(location.line());
}

}  // namespace

Block::Block(const LaunchOptions& options, const std::function<void()>& thread)
    : options_(options),
      body_(thread),
      dynamic_shared_(
          std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(options.shared_bytes))),
      random_(options.seed) {
  std::vector<std::vector<std::unique_ptr<Thread>>>& idle = IdleThreads();
  if (!idle.empty()) {
    own_ = std::move(idle.back());
    idle.pop_back();
  }
  for (uint32_t z = 0; z < options.block.z; ++z) {
    for (uint32_t y = 0; y < options.block.y; ++y) {
      for (uint32_t x = 0; x < options.block.x; ++x) {
        if (threads_.size() == own_.size()) own_.push_back(std::make_unique<Thread>());
        threads_.push_back(own_[threads_.size()].get());
        threads_.back()->index = {x, y, z};
      }
    }
  }
  results_.resize(static_cast<size_t>(warps()));
}

Block::~Block() { IdleThreads().push_back(std::move(own_)); }

int Block::warps() const {
  const int threads = static_cast<int>(threads_.size());
  return (threads + options_.warp_lanes - 1) / options_.warp_lanes;
}

std::pair<int, int> Block::ThreadsOf(int warp) const {
  const int first = warp * options_.warp_lanes;
  return {first, std::min(first + options_.warp_lanes, static_cast<int>(threads_.size()))};
}

Status Block::Run(Dim index) {
  index_ = index;
  serial_ = ++blocks_so_far;
  std::memset(dynamic_shared_.get(), 0xff, static_cast<size_t>(options_.shared_bytes));
  for (Thread* thread : threads_) {
    thread->wait = Wait::kNone;
    thread->copies.clear();
    thread->committed.clear();
    thread->issued = 0;
    thread->num_whole_exchanges = 0;
    thread->has_inputs = false;
    thread->fiber.Start(body_);
  }
  for (WarpResult& result : results_) result.exchange = 0;
  std::vector<int> order(static_cast<size_t>(warps()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::bernoulli_distribution goes_on(kSameWarp);
  do {
    bool ran = true;
    while (ran && error_.empty()) {
      ran = false;
      std::shuffle(order.begin(), order.end(), random_);
      for (int warp : order) {
        while (error_.empty() && RunWarp(warp)) {
          ran = true;
          ReleaseWarp(warp);
          if (!goes_on(random_)) break;
        }
        if (ran) break;
      }
    }
  } while (error_.empty() && (ReleasePeers() || ReleaseBlock()));
  return error_.empty() ? OkStatus() : Internal(error_);
}

// Lanes switch to each other; a lane that finishes, breaks a rule or lets other launches run, and
// the last one, switch back to here.
bool Block::RunWarp(int warp) {
  std::tie(first_, last_) = ThreadsOf(warp);
  lanes_left_ = last_ - first_;
  next_ = first_ + static_cast<int>(random_() % static_cast<uint64_t>(lanes_left_));
  bool ran = false;
  while (error_.empty() && TakeNextLane()) {
    ran = true;
    thread().fiber.Resume();
    if (std::exchange(passes_turn_, false)) turns.Pass();
    if (thread().fiber.finished() && !(thread().committed.empty() && thread().issued == 0)) {
      SetError("a thread returned without a wait for its asynchronous copies", thread());
    }
    if (thread().fiber.finished() && options_.early && !thread().has_inputs) {
      SetError("a thread of a kernel that is launched early returned without AwaitInputs()",
               thread());
    }
  }
  return ran;
}

bool Block::TakeNextLane() {
  while (lanes_left_ > 0) {
    --lanes_left_;
    const int candidate = std::exchange(next_, next_ + 1 == last_ ? first_ : next_ + 1);
    const Thread& thread = *threads_[static_cast<size_t>(candidate)];
    if (thread.fiber.finished() || thread.wait != Wait::kNone) continue;
    current_ = candidate;
    return true;
  }
  return false;
}

bool Block::ReleaseWarp(int warp) {
  const auto [first, last] = ThreadsOf(warp);
  bool released = false;
  for (int i = first; i < last; ++i) {
    const Thread& waiting = *threads_[static_cast<size_t>(i)];
    if (waiting.wait != Wait::kWarp) continue;
    const uint64_t mask = waiting.mask;
    bool complete = true;
    for (int lane = 0; lane < options_.warp_lanes && complete; ++lane) {
      if (!(mask >> lane & 1)) continue;
      const int other = first + lane;
      complete = other < last && threads_[static_cast<size_t>(other)]->wait == Wait::kWarp &&
                 threads_[static_cast<size_t>(other)]->mask == mask &&
                 IsSamePlace(threads_[static_cast<size_t>(other)]->location, waiting.location);
    }
    if (!complete) continue;
    for (int lane = 0; lane < options_.warp_lanes; ++lane) {
      if (mask >> lane & 1) threads_[static_cast<size_t>(first + lane)]->wait = Wait::kNone;
    }
    released = true;
  }
  return released;
}

bool Block::ReleasePeers() {
  bool waits = false;
  for (const Thread* thread : threads_) waits |= thread->wait == Wait::kPeers;
  if (!waits) return false;
  if (!turns.Pass()) std::this_thread::sleep_for(kIdle);
  for (Thread* thread : threads_) {
    if (thread->wait == Wait::kPeers) thread->wait = Wait::kNone;
  }
  return true;
}

// No thread can run: either all stand at one barrier, or all are finished, or a rule is broken.
bool Block::ReleaseBlock() {
  const Thread* waiting = nullptr;
  size_t finished = 0;
  for (Thread* thread : threads_) {
    if (thread->fiber.finished()) {
      ++finished;
    } else if (thread->wait == Wait::kWarp) {
      SetError("a lane that the mask names does not get here (it returned or waits elsewhere)",
               *thread);
      return false;
    } else if (waiting == nullptr) {
      waiting = thread;
    } else if (!IsSamePlace(waiting->location, thread->location)) {
      SetError("threads of the block wait at different barriers, another is " +
                   ToString(thread->location),
               *waiting);
      return false;
    }
  }
  if (waiting == nullptr) return false;
  if (finished > 0) {
    SetError("the barrier is not reached by threads that returned", *waiting);
    return false;
  }
  for (Thread* thread : threads_) thread->wait = Wait::kNone;
  return true;
}

void Block::WaitAs(Wait wait, uint64_t mask, Location location) {
  Thread& waiting = thread();
  waiting.wait = wait;
  waiting.mask = mask;
  waiting.location = location;
  if (!passes_turn_ && TakeNextLane()) {
    waiting.fiber.SwitchTo(thread().fiber);
  } else {
    waiting.fiber.Suspend();
  }
}

void Block::WaitForWarp(uint64_t mask, Location location) {
  if (!(mask >> lane() & 1)) Fail("a lane is not in the mask that it waits with", location);
  WaitAs(Wait::kWarp, mask, location);
}

void Block::LetPeersRun(Location location) {
  passes_turn_ = true;
  WaitAs(Wait::kNone, 0, location);
}

void Block::Fail(const char* message, Location location) {
  thread().location = location;
  SetError(message, thread());
  thread().fiber.Suspend();
  std::abort();
}

void Block::SetError(const std::string& message, const Thread& thread) {
  const auto text = [](const Dim& dim) {
    return "(" + std::to_string(dim.x) + ", " + std::to_string(dim.y) + ", " +
           std::to_string(dim.z) + ")";
  };
  error_ = message + ": block " + text(index_) + ", thread " + text(thread.index) + ", at " +
           ToString(thread.location);
}

Status Launch(const LaunchOptions& options, const std::function<void()>& thread) {
  if (options.warp_lanes != 32 && options.warp_lanes != 64) {
    return InvalidArgument("warp_lanes is 32 or 64");
  }
  if (options.block.size() < 1 || options.block.size() > kMaxBlockThreads) {
    return InvalidArgument("a block has 1 to 1024 threads");
  }
  struct Turn {
    Turn() { turns.Take(); }
    ~Turn() { turns.Give(); }
  };
  const Turn turn;
  Block block(options, thread);
  running = &block;
  for (uint32_t z = 0; z < options.grid.z; ++z) {
    for (uint32_t y = 0; y < options.grid.y; ++y) {
      for (uint32_t x = 0; x < options.grid.x; ++x) {
        if (Status ran = block.Run({x, y, z}); !ran.ok()) return ran;
      }
    }
  }
  return OkStatus();
}

}  // namespace pagemill::gpu::emulation
