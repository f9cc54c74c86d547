// File: cc/program/device/device_weights.h
// The weights of a program in a device's memory, and those that are offloaded in mapped memory of
// the host (weight_arena.h says where). They go to the device from their mapped files through two
// buffers: no more of them is in the host's memory at a time than these, and the largest copy in a
// packed layout, if kernels require any.
//
//   PAGEMILL_ASSIGN_OR_RETURN(Weights::Files files, Weights::Open(program));
//   PAGEMILL_ASSIGN_OR_RETURN(DeviceWeights weights,
//                             DeviceWeights::Upload(program, files, kernels, {}, device));
//   WeightOperand w = weights.at(op, input);
//
// Immutable after Upload(); thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/device/device_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

class DeviceWeights {
 public:
  // `files`: Weights::Open(), of which no page is in memory afterwards. Returns the errors of
  // packing and of the device.
  static StatusOr<DeviceWeights> Upload(const Program& program, const Weights::Files& files,
                                        const KernelSelection& kernels,
                                        const UploadOptions& options, device::Device& device);

  // The weight that is input `input` of op `op`.
  WeightOperand at(size_t op, size_t input) const { return operands_.at({op, input}); }
  // A part of quantized weights; null if no kernel reads it.
  const std::byte* part(ValueId id) const {
    const auto found = parts_.find(id);
    return found == parts_.end() ? nullptr : found->second;
  }
  // Of both memories.
  int64_t bytes() const {
    return static_cast<int64_t>(memory_.bytes().size() + host_memory_.bytes().size());
  }
  double seconds() const { return seconds_; }  // that the upload took

 private:
  device::DeviceMemory memory_;
  device::HostMemory host_memory_;  // mapped
  std::map<std::pair<size_t, size_t>, WeightOperand> operands_;
  std::map<ValueId, const std::byte*> parts_;
  double seconds_ = 0;
};

// Weights beside those that an executor uses.
struct OtherWeights {
  Program program;
  Weights::Files files;
  std::optional<DeviceWeights> weights = std::nullopt;  // if they are uploaded
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_
