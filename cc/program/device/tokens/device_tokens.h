// File: cc/program/device/tokens/device_tokens.h
// Tokens that stay on a device: after a program's logits, the largest of each row is found or a
// token drawn, and the next step reads its tokens from there, so that it can be enqueued before the
// host knows them.
//
//   PAGEMILL_ASSIGN_OR_RETURN(DeviceTokens tokens, DeviceTokens::Create(plan, device));
//   tokens.EnqueueTake(ids, *stream);       // replaces negative ids by the previous step's tokens
//   ... the program ...
//   tokens.EnqueueFind(logits, num_rows, *stream);
//   tokens.EnqueueDraw(logits, ids, draws, &found, *stream);  // if not all rows keep the largest
//   tokens.EnqueueCopy(num_rows, &found, *stream);  // to the host: found.Maxima(), Scores()
//
// Its device arrays have fixed addresses, so EnqueueTake() and EnqueueFind() may be part of a
// graph. A step's tokens overwrite those of the previous step, so a step that finds none leaves
// nothing to read. Drawn tokens replace the largest.
//
// The device must outlive it. Thread safety: that of Executor.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_DEVICE_TOKENS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_DEVICE_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/ops/op.h"
#include "cc/ops/row_maxima.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/program/device/tokens/logit_adjuster.h"
#include "cc/program/device/tokens/token_scorer.h"
#include "cc/program/executor.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// Host buffers of the tokens that a step finds.
class FoundTokens {
 public:
  // For a step that may have no draws.
  void Clear() { scores_.Clear(); }
  // The rows that were copied last; valid until the next call.
  std::span<const ops::RowMaximum> Maxima();
  // Of StepDraws::scored.
  std::span<const ops::TokenScores> Scores() const { return scores_.Scores(); }

 private:
  friend class DeviceTokens;
  device::HostMemory memory_;
  // In `memory_`:
  std::span<ops::RowDraw> draws_;  // sent to the device
  std::span<uint32_t> masks_;
  AdjustmentBuffer adjustments_;
  ScoreBuffer scores_;
  std::span<int32_t> columns_;  // copied back
  std::span<float> values_;
  size_t num_rows_ = 0;
  std::vector<ops::RowMaximum> maxima_;
};

// The kernels that choose tokens, and the bytes of what they read and write.
struct TokenPlan {
  const ops::Kernel* take = nullptr;
  const ops::Kernel* find = nullptr;
  const ops::Kernel* mask = nullptr;
  const ops::Kernel* draw = nullptr;
  AdjusterPlan adjuster;
  ScorerPlan scorer;
  int64_t num_columns = 0;
  int64_t row_stride_bytes = 0;  // of logits
  int64_t max_rows = 0;
  int64_t workspace_bytes = 0;

  int64_t num_mask_words() const { return (num_columns + 31) / 32; }  // per row
  int64_t value_offset() const;  // of the values of all rows, behind their columns
  int64_t found_bytes() const { return value_offset() + 4 * max_rows; }
  int64_t draw_bytes() const;
  int64_t mask_bytes() const { return 4 * num_mask_words() * max_rows; }
  // On the device, without masks, counts and copies of rows.
  int64_t token_bytes() const {
    return found_bytes() + draw_bytes() + adjuster.device_bytes() + scorer.step_bytes() +
           workspace_bytes;
  }
  int64_t host_bytes() const { return found_bytes() + draw_bytes() + mask_bytes(); }  // of a step
};

// Tokens are the first `num_columns` columns of logits; `num_slots` requests may have biases and
// penalties, 0: none. kInvalidArgument if the program has no logits or fewer columns; else errors
// of the op table.
StatusOr<TokenPlan> PlanTokens(const Program& program, const Target& target,
                               const ExecutorOptions& options, int32_t num_columns,
                               int32_t num_slots);

class DeviceTokens {
 public:
  static StatusOr<DeviceTokens> Create(const TokenPlan& plan, device::Device& device);

  int32_t num_columns() const { return static_cast<int32_t>(plan_.num_columns); }
  int64_t num_mask_words() const { return plan_.num_mask_words(); }

  StatusOr<FoundTokens> NewFound(device::Device& device) const;

  // Replaces the negative ids in `ids` [num_tokens], in device memory.
  void EnqueueTake(const int32_t* ids, int64_t num_tokens, device::Stream& stream) const;
  // Finds the largest of each of `num_rows` rows of `logits`, in device memory.
  void EnqueueFind(const std::byte* logits, int64_t num_rows, device::Stream& stream) const;
  // kInvalidArgument if `draws` are not for `num_rows` rows, refer to masks that do not exist, or
  // as Check() of LogitAdjuster and TokenScorer says.
  Status CheckDraws(const StepDraws& draws, int64_t num_rows, int64_t num_ids) const;
  // Chooses one token for each of `draws` from rows of `logits` for which EnqueueFind() was
  // enqueued, and scores those that are wanted; overwrites logits that are masked or adjusted.
  // `ids`: of the step, in device memory. `step` must not change until that is done.
  void EnqueueDraw(std::byte* logits, std::span<const int32_t> ids, const StepDraws& draws,
                   FoundTokens* step, device::Stream& stream) const;
  // Copies the results of the first `num_rows` rows; `to` must not change until the copy is done.
  void EnqueueCopy(int64_t num_rows, FoundTokens* to, device::Stream& stream) const;

 private:
  DeviceTokens() = default;
  TensorView Logits(const std::byte* data, int64_t num_rows) const;
  const std::byte* columns() const { return found_.data(); }
  const std::byte* values() const { return found_.data() + plan_.value_offset(); }
  void Run(const ops::Kernel& kernel, const ops::OpCall& call, device::Stream& stream) const;

  TokenPlan plan_;
  device::DeviceMemory found_;  // the columns of all rows, then their values
  device::DeviceMemory draws_, masks_, workspace_;
  std::optional<LogitAdjuster> adjuster_;
  std::optional<TokenScorer> scorer_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_DEVICE_TOKENS_H_
