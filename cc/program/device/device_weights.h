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
// Immutable after Upload(), except for WeightChanges; thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/thread_pool.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/device/device_options.h"
#include "cc/program/device/staged_upload.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"
#include "cc/program/weights/lazy_memory.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

class WeightChanges;

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
  friend class WeightChanges;

  device::DeviceMemory memory_;
  device::HostMemory host_memory_;  // mapped
  std::map<std::pair<size_t, size_t>, WeightOperand> operands_;
  std::map<ValueId, const std::byte*> parts_;
  double seconds_ = 0;
};

// What differs between a program's weights on a device and other ones of the same program, to be
// written over them. Host memory holds the changed weights in packed layouts until then; others are
// read from their files when they are written.
//
//   PAGEMILL_ASSIGN_OR_RETURN(WeightChanges changes, WeightChanges::Make(...));
//   PAGEMILL_RETURN_IF_ERROR(changes.Write());   // while no kernel runs
//
// Thread safety: none.
class WeightChanges {
 public:
  struct Source {
    const Program& program;
    const Weights::Files& files;  // Weights::Open()
  };
  // `weights` are those of `loaded`, uploaded with these kernels and options; they outlive this.
  // Nothing is written yet. kInvalidArgument if the two differ in which weights have the same
  // bytes; the errors of packing and of the device otherwise.
  static StatusOr<WeightChanges> Make(const Source& loaded, const Source& other,
                                      const KernelSelection& kernels, const UploadOptions& options,
                                      device::Device& device, DeviceWeights* weights);
  // Not OK: the device failed, and what the weights are is not known.
  Status Write();

 private:
  struct Change {
    size_t piece;  // index in the order of addresses
    bool on_host;
    int64_t offset;
    std::span<const std::byte> bytes;  // in `made_` or in the weights
  };

  WeightChanges(const Source& other, const KernelSelection& kernels, StagedUpload upload,
                DeviceWeights* weights);

  Weights other_;
  std::unique_ptr<device::ThreadPool> pool_;
  StagedUpload upload_;
  DeviceWeights* weights_;
  std::vector<LazyMemory> made_;
  std::vector<Change> changes_;
};

// Weights beside those that an executor uses.
struct OtherWeights {
  Program program;
  Weights::Files files;
  std::optional<DeviceWeights> weights = std::nullopt;  // if they are uploaded
  std::optional<WeightChanges> changes = std::nullopt;  // or are to be written over those in use
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_WEIGHTS_H_
