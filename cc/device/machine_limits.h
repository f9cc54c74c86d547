// File: cc/device/machine_limits.h
// What this machine can do at most, measured: multiply-adds of each instruction set that it has,
// and reading of a buffer. A benchmark prints what it achieved over what is measured here in the
// same process, because limits of shared machines move from minute to minute.
//
//   ThreadPool pool({.num_threads = 2});
//   const Capabilities caps = DetectCapabilities();
//   double bytes_per_s = MeasureReadBandwidth(caps, {.bytes = 98 << 20}, pool);
//   for (const Peak& peak : PresentPeaks(caps)) double per_s = *MeasurePeak(caps, peak, pool);
//
// All functions use the pool they get and nothing else; a measurement is the best of several
// passes, for a limit is what the machine does undisturbed. Nothing here is needed to serve a
// model.
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
  // As Capabilities names it, "avx512_bf16", or where one has several ways, as the kernels are:
  // "avx2_int8"; "portable": 16-byte vectors.
  std::string isa;
  std::string format;    // of the operands: "f32", "bf16", "int8", "int16"
  std::string operands;  // where they are: "registers", "L1" or "L2" (random values in all three)

  friend bool operator==(const Peak&, const Peak&) = default;
};

// Those that a CPU with `caps` has, the portable one first, wider ones later.
std::vector<Peak> PresentPeaks(const Capabilities& caps);

// Operations a second of all threads of the pool together; a multiplication and an addition are
// two. Takes about `seconds`. NOT_FOUND if `caps` lacks the instructions or `peak` is unknown.
StatusOr<double> MeasurePeak(const Capabilities& caps, const Peak& peak, ThreadPool& pool,
                             double seconds = 0.1);

// f32 operations a second from the widest registers of `caps`.
double MeasureFlops(const Capabilities& caps, ThreadPool& pool);

// Bytes a second when all threads read the buffer from end to end, again and again: a buffer that
// fits a cache is read from there. Each thread keeps to its own part of a buffer of up to 4 MiB,
// which may be in its own cache; larger ones are handed out in pieces. At least 64 bytes.
double MeasureReadBandwidth(const Capabilities& caps, std::span<const uint8_t> buffer,
                            ThreadPool& pool, double seconds = 0.1);

struct ReadOptions {
  int64_t bytes = 1 << 20;  // size of the buffer, in large pages where the system has them
  double seconds = 0.1;     // to measure for; making the buffer comes on top
};

// The same for a buffer of its own. RESOURCE_EXHAUSTED if there is no memory for it,
// INVALID_ARGUMENT for a size below 64 bytes.
StatusOr<double> MeasureReadBandwidth(const Capabilities& caps, const ReadOptions& options,
                                      ThreadPool& pool);

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_MACHINE_LIMITS_H_
