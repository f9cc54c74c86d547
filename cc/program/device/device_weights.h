// File: cc/program/device/device_weights.h
// The weights of a program in a device's memory: packed on the host as the chosen kernels read
// them, then sent, each byte range once.
//
//   PAGEMILL_ASSIGN_OR_RETURN(DeviceWeights weights, DeviceWeights::Upload(program, kernels,
//   device)); WeightOperand w = weights.at(op, input);
//
// Immutable after Upload(); thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_

#include <cstddef>
#include <map>
#include <utility>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"

namespace pagemill::program {

class DeviceWeights {
 public:
  // What the files hold is mapped until all is sent, and not kept. The errors of Weights::Load()
  // and PackedWeights::Make(), and of the device.
  static StatusOr<DeviceWeights> Upload(const Program& program, const KernelSelection& kernels,
                                        const ExecutorOptions& options, device::Device& device);

  // Input `input` of op `op`, which is a weight.
  WeightOperand at(size_t op, size_t input) const { return operands_.at({op, input}); }
  // A part of quantized weights; null if no kernel reads it.
  const std::byte* part(ValueId id) const {
    const auto found = parts_.find(id);
    return found == parts_.end() ? nullptr : found->second;
  }

 private:
  device::DeviceMemory memory_;
  std::map<std::pair<size_t, size_t>, WeightOperand> operands_;
  std::map<ValueId, const std::byte*> parts_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_
