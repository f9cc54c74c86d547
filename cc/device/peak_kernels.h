// File: cc/device/peak_kernels.h
// The loops behind MeasurePeak(): a table with one entry per way to multiply and add. Each CPU has
// a file (vector_peaks_x86.cc, ...) with the loops of its instruction sets; a function attribute
// sets a loop's instruction set, so that code shared with other files is not affected. To add a
// set, add an entry there.
#ifndef PAGEMILL_CC_DEVICE_PEAK_KERNELS_H_
#define PAGEMILL_CC_DEVICE_PEAK_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cc/device/capabilities.h"

namespace pagemill::device {

struct PeakKernel {
  std::string_view isa;
  std::string_view format;
  std::string_view operands;
  bool (*present)(const Capabilities& caps);
  // Bytes of random values of `format` that a thread needs; a multiple of 64.
  int64_t operand_bytes;
  // Multiplies for `steps` rounds, from `operand_bytes` at a 64-byte boundary. Returns the number
  // of operations: a multiply-add is two.
  double (*run)(const std::byte* operands, int64_t steps);
};

// Empty on other CPUs.
std::span<const PeakKernel> VectorPeaksX86();
std::span<const PeakKernel> TilePeaksX86();
std::span<const PeakKernel> VectorPeaksArm();

// The 16-byte vectors that every supported CPU has.
const PeakKernel& PortablePeak();

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_PEAK_KERNELS_H_
