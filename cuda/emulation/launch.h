// File: cuda/emulation/launch.h
// Runs a kernel on the CPU, for tests: every thread of a block is a fiber, and blocks run one after
// another. Kernels are written in the vocabulary of cuda/gpu_vendor.h.
//
//   Status ran = Launch({.grid = {rows}, .block = {128}, .seed = 3}, [&] { Kernel(x, y); });
//
// A kernel that depends on what a GPU does not promise gives a wrong result, for most seeds, or an
// error:
//   * warps run in a random order (of the seed), and so do the lanes of a warp;
//   * shared memory holds 0xff bytes (NaN) when a block begins;
//   * an asynchronous copy writes 0xff bytes when it is issued, and the data at its wait;
//   * lanes of a warp, or threads of a block, that wait at different places are an error, and so
//     are a mask that names a lane that returned or waits elsewhere, a barrier that some threads
//     left out by returning, copies without a wait, and a kernel that is launched early (which runs
//     in its turn here) and has a thread that does not wait for its inputs.
// Not emulated: the order of memory operations between blocks, what a kernel that is launched early
// reads too soon, clusters. wgmma.h has the words of gpu_wgmma.h.
//
// One launch runs at a time in a process; a second caller waits. At words of system scope
// (LoadAcquire, StoreRelease) a launch lets those that wait run first, so that kernels of several
// ranks, launched by a host thread each, may wait for one another. Blocks of a launch run one after
// another: a block may wait only for blocks of other launches that need no later one of its own.
#ifndef PAGEMILL_CUDA_EMULATION_LAUNCH_H_
#define PAGEMILL_CUDA_EMULATION_LAUNCH_H_

#include <cstdint>
#include <functional>

#include "cc/base/status.h"

namespace pagemill::gpu::emulation {

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
  int64_t size() const { return int64_t{x} * y * z; }
};

inline constexpr int64_t kMaxBlockThreads = 1024;

struct LaunchOptions {
  Dim grid = {};
  Dim block = {};
  int64_t shared_bytes = 0;   // dynamic shared memory of a block
  int warp_lanes = 32;        // 32 or 64
  bool is_of_amd = false;     // with 32 lanes: it has the words of gpu_matrix_cores.h, and no others
  bool sums_in_turn = false;  // of those words, as on gfx11; on gfx12 they are not
  uint64_t seed = 1;          // of the order of warps and lanes
  bool early = false;         // gpu_launch.h
};

// `thread` is the kernel as one thread runs it. InvalidArgument: a block of this shape is
// impossible. Internal: the kernel broke a rule; the message names the rule, block and line.
Status Launch(const LaunchOptions& options, const std::function<void()>& thread);

}  // namespace pagemill::gpu::emulation

#endif  // PAGEMILL_CUDA_EMULATION_LAUNCH_H_
