// File: cc/device/peak_kernels.h
// The loops behind MeasurePeak(): one row for each way to multiply and add. A file for one CPU
// (vector_peaks_x86.cc, ...) holds the loops of its instruction sets; each loop is compiled for its
// set by a function attribute, so that no code that other files share is. To add a set: a row
// there.
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
  // What a thread needs of random values of `format`; a multiple of 64.
  int64_t operand_bytes;
  // Multiplies for `steps` rounds, from `operand_bytes` at a 64-byte boundary. Returns the
  // operations done: a multiplication and an addition are two.
  double (*run)(const std::byte* operands, int64_t steps);
};

// Empty on other CPUs.
std::span<const PeakKernel> VectorPeaksX86();
std::span<const PeakKernel> TilePeaksX86();
std::span<const PeakKernel> VectorPeaksArm();

// The vectors of 16 bytes that every CPU here has.
const PeakKernel& PortablePeak();

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_PEAK_KERNELS_H_
