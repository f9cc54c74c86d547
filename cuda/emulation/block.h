// File: cuda/emulation/block.h
// The block that is being emulated: what vocabulary.h is made of. Kernels do not use this header.
#ifndef PAGEMILL_CUDA_EMULATION_BLOCK_H_
#define PAGEMILL_CUDA_EMULATION_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emulation/fiber.h"
#include "cuda/emulation/launch.h"

namespace pagemill::gpu::emulation {

inline constexpr int kMaxLanes = 64;
inline constexpr size_t kMaxExchangeBytes = 32;  // what a lane hands to its warp at once
inline constexpr size_t kMaxResultBytes = 1024;  // what lanes make of it together

using Location = std::source_location;

struct AsyncCopy {
  void* to;
  const void* from;
  size_t bytes;
};

// Why a thread does not run.
enum class Wait { kNone, kWarp, kBlock, kPeers };

struct Thread {
  Fiber fiber;
  Dim index;
  Wait wait = Wait::kNone;
  uint64_t mask = 0;   // of the lanes that it waits for
  Location location;   // where it waits, or waited last
  std::vector<AsyncCopy> copies;   // that have not landed, in the order of their issue
  std::vector<size_t> committed;   // groups of them, the oldest first: how many each has
  size_t issued = 0;               // the last of them, since the last commit
  // What it hands to its warp: the whole warp by turns in the first two, so that no lane has to
  // wait until the others have read; some of its lanes in the third.
  alignas(16) std::byte exchanged[3][kMaxExchangeBytes];
  uint64_t num_whole_exchanges = 0;
  bool has_inputs = false;  // it called AwaitInputs()
};

// What the lanes of a warp make of a whole exchange together: the first lane that reads it computes
// for all.
struct WarpResult {
  uint64_t exchange = 0;  // num_whole_exchanges of each lane; 0: none
  alignas(16) std::byte bytes[kMaxResultBytes];
};

class Block {
 public:
  Block(const LaunchOptions& options, const std::function<void()>& thread);
  ~Block();

  Status Run(Dim index);

  // The rest is for the thread that runs.
  Thread& thread() { return *threads_[static_cast<size_t>(current_)]; }
  int lane() const { return current_ % options_.warp_lanes; }
  int warp() const { return current_ / options_.warp_lanes; }
  const Thread& LaneOfWarp(int lane) const {
    return *threads_[static_cast<size_t>(current_ - this->lane() + lane)];
  }
  WarpResult& result() { return results_[static_cast<size_t>(warp())]; }
  Dim index() const { return index_; }
  const LaunchOptions& options() const { return options_; }
  uint64_t serial() const { return serial_; }  // of this block among all in the process
  std::byte* dynamic_shared() { return dynamic_shared_.get(); }

  void WaitForBlock(Location location) { WaitAs(Wait::kBlock, 0, location); }
  // Returns when no other thread of the block can run and other launches had a turn.
  void WaitForPeers(Location location) { WaitAs(Wait::kPeers, 0, location); }
  // Other launches have a turn at once.
  void LetPeersRun(Location location);
  // Waits for the lanes of `mask`, which must include this one.
  void WaitForWarp(uint64_t mask, Location location);
  // Ends the launch with this message. Nothing on the thread's stack is destroyed.
  [[noreturn]] void Fail(const char* message, Location location);

 private:
  void WaitAs(Wait wait, uint64_t mask, Location location);
  // Makes the next lane of the warp's turn that can go on the current one; false: none can.
  bool TakeNextLane();
  int warps() const;
  std::pair<int, int> ThreadsOf(int warp) const;  // [first, last)
  bool RunWarp(int warp);                         // false: no lane could run
  bool ReleaseWarp(int warp);                     // true: lanes that met go on
  bool ReleasePeers();  // true: threads that waited for other launches go on
  bool ReleaseBlock();
  void SetError(const std::string& message, const Thread& thread);

  LaunchOptions options_;
  const std::function<void()>& body_;
  std::vector<Thread*> threads_;  // the first of `own_`, for one block after another
  std::vector<WarpResult> results_;  // of warps
  std::unique_ptr<std::byte[]> dynamic_shared_;
  std::mt19937_64 random_;
  Dim index_;
  uint64_t serial_ = 0;
  int current_ = 0;
  // The turn of a warp: its lanes [first_, last_), cyclically from a random one, `lanes_left_` of
  // them not looked at.
  int first_ = 0, last_ = 0, next_ = 0, lanes_left_ = 0;
  std::string error_;
  bool passes_turn_ = false;
  std::vector<std::unique_ptr<Thread>> own_;
};

// The block that runs on this host thread; a launch sets it.
inline constinit thread_local Block* running = nullptr;
inline Block& CurrentBlock() { return *running; }

// A variable in static shared memory, which is on the heap: AddressSanitizer guards its ends there.
template <typename T>
class SharedVariable {
 public:
  T& Get() {
    if (serial_ != CurrentBlock().serial()) {
      serial_ = CurrentBlock().serial();
      std::memset(bytes_.get(), 0xff, sizeof(T));
    }
    return *reinterpret_cast<T*>(bytes_.get());
  }

 private:
  uint64_t serial_ = 0;
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(sizeof(T));
};

}  // namespace pagemill::gpu::emulation

#endif  // PAGEMILL_CUDA_EMULATION_BLOCK_H_
