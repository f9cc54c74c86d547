// File: cc/device/machine_limits.h
// Measures the limits of this machine: multiply-adds with each of its instruction sets, and the
// bandwidth of reading a buffer. A benchmark prints its result relative to a limit measured in the
// same process, because limits of shared machines change from minute to minute.
//
//   ThreadPool pool({.num_threads = 2});
//   const Capabilities caps = DetectCapabilities();
//   double bytes_per_s = MeasureReadBandwidth(caps, {.bytes = 98 << 20}, pool);
//   for (const Peak& peak : PresentPeaks(caps)) double per_s = *MeasurePeak(caps, peak, pool);
//
// All functions use only the given pool; a measurement is the best of several passes, because a
// limit is the speed of the undisturbed machine. Serving a model does not need this.
#ifndef PAGEMILL_CC_DEVICE_MACHINE_LIMITS_H_
#define PAGEMILL_CC_DEVICE_MACHINE_LIMITS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"

namespace pagemill::device {

// One way to multiply and add.
struct Peak {
  // The name in Capabilities, "avx512_bf16", or, if a capability has several kernels, the kernel's
  // name: "avx2_int8"; "portable": 16-byte vectors.
  std::string isa;
  std::string format;    // of the operands: "f32", "bf16", "int8", "int16"
  std::string operands;  // location: "registers", "L1" or "L2" (random values in all three)

  friend bool operator==(const Peak&, const Peak&) = default;
};

// The peaks of a CPU with `caps`, the portable one first, wider ones later.
std::vector<Peak> PresentPeaks(const Capabilities& caps);

// Operations per second over all threads of the pool; a multiply-add is two. Takes about `seconds`.
// NOT_FOUND if `caps` lacks the instructions or `peak` is unknown.
StatusOr<double> MeasurePeak(const Capabilities& caps, const Peak& peak, ThreadPool& pool,
                             double seconds = 0.1);

// f32 operations per second with the widest registers of `caps`.
double MeasureFlops(const Capabilities& caps, ThreadPool& pool);

// Bytes per second while all threads repeatedly read the buffer from end to end; a buffer that fits
// a cache is read from there. With up to 4 MiB, each thread keeps to its own part, which may be in
// its own cache; larger buffers are distributed in pieces. At least 64 bytes.
double MeasureReadBandwidth(const Capabilities& caps, std::span<const uint8_t> buffer,
                            ThreadPool& pool, double seconds = 0.1);

struct ReadOptions {
  int64_t bytes = 1 << 20;  // size of the buffer, in large pages if available
  double seconds = 0.1;     // measurement time; allocation is extra
};

// Likewise, for a buffer that it allocates. RESOURCE_EXHAUSTED if there is no memory for it,
// INVALID_ARGUMENT for a size below 64 bytes.
StatusOr<double> MeasureReadBandwidth(const Capabilities& caps, const ReadOptions& options,
                                      ThreadPool& pool);

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_MACHINE_LIMITS_H_
