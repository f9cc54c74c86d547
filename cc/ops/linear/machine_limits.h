// File: cc/ops/linear/machine_limits.h
// What the machine that runs a benchmark can do at most, measured in the same process: float
// multiply-adds from registers and reading of a buffer. For benchmarks only.
#ifndef PAGEMILL_CC_OPS_LINEAR_MACHINE_LIMITS_H_
#define PAGEMILL_CC_OPS_LINEAR_MACHINE_LIMITS_H_

#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"

namespace pagemill::ops::linear {

// Multiplications and additions a second, all threads of the pool, widest registers of `caps`.
double MeasureFlops(const device::Capabilities& caps, device::ThreadPool& pool);

// Bytes a second when all threads read the buffer from end to end, again and again (so a buffer
// that fits in a cache is read from there). Best of several passes.
double MeasureReadBandwidth(const device::Capabilities& caps, std::span<const uint8_t> buffer,
                            device::ThreadPool& pool);

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_MACHINE_LIMITS_H_
