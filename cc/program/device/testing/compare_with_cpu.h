// File: cc/program/device/testing/compare_with_cpu.h
// Runs a program on a device and on the CPU, on the same requests: prompts of several lengths in one
// step, then decoding, with two steps in flight; on the device first kernel by kernel, then from
// graphs. For vendor trees, whose kernels add in other orders than the CPU's. Test code only.
//
//   PAGEMILL_RETURN_IF_ERROR(CompareWithCpu(text, {.act = DType::kBF16, .tolerance = 0.02},
//                                     {.ops = SyclOps(), .capabilities = caps}, device));
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TESTING_COMPARE_WITH_CPU_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TESTING_COMPARE_WITH_CPU_H_

#include <string>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/program/kernel_selection.h"
#include "cc/tensor/dtype.h"

namespace pagemill::program::testing {

struct Comparison {
  DType act = DType::kF32;
  double tolerance = 0;  // of a logit, relative to the largest of all
};

// kInternal, with the first difference, unless
// - the logits of every step agree within the tolerance, if the device is given the CPU's tokens;
// - and greedy tokens agree if each step of the device reads those of the step before, which stay on
//   the device. With f32 activations they must be equal, else within the tolerance of the best.
// `text` is a program with logits whose only inputs are step arrays.
Status CompareWithCpu(const std::string& text, const Comparison& comparison, const Target& target,
                      device::Device& device);

}  // namespace pagemill::program::testing

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TESTING_COMPARE_WITH_CPU_H_
