// File: cc/program/device/tokens/logit_adjuster.h
// Biases and penalties of a step's logits on a device, which keeps count of the tokens of requests
// with penalties (cc/ops/count_tokens, cc/ops/adjust_logits).
//
//   PAGEMILL_ASSIGN_OR_RETURN(AdjusterPlan plan, PlanAdjuster(target, logits, max_tokens, slots));
//   PAGEMILL_ASSIGN_OR_RETURN(LogitAdjuster adjuster, LogitAdjuster::Create(plan, device));
//   PAGEMILL_ASSIGN_OR_RETURN(AdjustmentBuffer step, adjuster.NewBuffer(device));
//   PAGEMILL_RETURN_IF_ERROR(adjuster.Check(draws, num_rows, num_ids));
//   adjuster.Enqueue(logits, ids, draws, &step, *stream);
//
// The device must outlive it. Thread safety: that of Executor.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_LOGIT_ADJUSTER_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_LOGIT_ADJUSTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/ops/op.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/program/executor.h"
#include "cc/program/kernel_selection.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// The kernels, and the sizes of what they read and write.
struct AdjusterPlan {
  const ops::Kernel* count = nullptr;
  const ops::Kernel* adjust = nullptr;
  int64_t num_columns = 0;  // tokens
  int64_t max_rows = 0;
  int64_t num_slots = 0;  // of requests; 0: nothing can be adjusted
  // Counts, and biases, that are sent at once. More follow when the device has used those: the host
  // waits for it.
  int64_t changes_at_once = 1 << 16;

  int64_t count_bytes() const { return 4 * num_columns * num_slots; }  // of all slots
  int64_t device_bytes() const;  // of what a step changes
  int64_t host_bytes() const;    // likewise
};

// For rows of `logits` (at most as many as its shape has), steps of up to `max_tokens` tokens, and
// `num_slots` requests. The errors of the op table.
StatusOr<AdjusterPlan> PlanAdjuster(const Target& target, const TensorView& logits,
                                    int64_t max_tokens, int64_t num_slots);

// Host memory of what a step sends.
class AdjustmentBuffer {
 private:
  friend class LogitAdjuster;
  device::HostMemory memory_;
  // In `memory_`:
  std::span<ops::TokenCount> counts_;
  std::span<ops::LogitBias> biases_;
  std::span<int32_t> cleared_slots_;
  std::span<ops::RowPenalties> penalties_;
};

class LogitAdjuster {
 public:
  static StatusOr<LogitAdjuster> Create(const AdjusterPlan& plan, device::Device& device);

  StatusOr<AdjustmentBuffer> NewBuffer(device::Device& device) const;

  // kInvalidArgument if `draws` refer to rows, slots, tokens or ids of the step that do not exist,
  // of `num_rows` and `num_ids`.
  Status Check(const StepDraws& draws, int64_t num_rows, int64_t num_ids) const;

  // Counts, then changes `logits`, both in device memory, as are `ids`, the step's. `step` must not
  // change until that is done.
  void Enqueue(const TensorView& logits, std::span<const int32_t> ids, const StepDraws& draws,
               AdjustmentBuffer* step, device::Stream& stream) const;

 private:
  LogitAdjuster() = default;
  void EnqueueCounts(std::span<const int32_t> ids, const StepDraws& draws, AdjustmentBuffer* step,
                     device::Stream& stream) const;
  template <typename Change, typename Run>
  void ForEachPart(std::span<const Change> changes, std::span<Change> buffer,
                   device::Stream& stream, const Run& run) const;
  TensorView Counts() const;
  std::byte* changes() const { return sent_.data(); }
  std::byte* cleared_slots() const;
  std::byte* penalties() const;

  AdjusterPlan plan_;
  device::DeviceMemory counts_;  // [num_slots, num_columns]
  device::DeviceMemory sent_;    // counts or biases, cleared slots, penalties
  std::unique_ptr<device::Event> used_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_LOGIT_ADJUSTER_H_
