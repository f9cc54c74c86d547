// File: cc/runner/ranks/step_message.h
// A step as a message between ranks: the arrays of its batch and its inputs, as int32s.
//
//   std::vector<int32_t> message;
//   PAGEMILL_RETURN_IF_ERROR(WriteStep(batch, bounds, &message));            // the sender
//   PAGEMILL_ASSIGN_OR_RETURN(size_t size, StepSize(first_piece, bounds));   // the receiver
//   PAGEMILL_RETURN_IF_ERROR(executor->Enqueue(ReadStep(message).view()));
//
// The first 4 KiB of a message, all of a decode step, are its first piece, and hold what its size
// follows from. Thread safety: none.
#ifndef PAGEMILL_CC_RUNNER_RANKS_STEP_MESSAGE_H_
#define PAGEMILL_CC_RUNNER_RANKS_STEP_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

// The most that a step holds; the same on all ranks.
struct StepBounds {
  int32_t max_num_tokens = 0;
  int32_t max_num_seqs = 0;
  int32_t max_num_logits_rows = 0;
  int32_t num_blocks = 0;
  int64_t input_bytes = 0;  // of all inputs together
};

// int32s that every message has, padded.
inline constexpr size_t kFirstPiece = 1024;

// The first int32 of a message.
enum class MessageKind : int32_t { kEnd = 1, kStep, kDraws, kAdapter, kCollect, kControl };

inline MessageKind KindOf(std::span<const int32_t> message) {
  return static_cast<MessageKind>(message[0]);
}

// A step in the memory of a message.
struct MessageStep {
  ops::StepArrays step;
  std::vector<ops::KvArrays> tables;
  std::vector<TensorView> inputs;  // dense
  uint32_t present = 0;            // bit a: the step has ops::kStepArrays[a]

  ops::StepBatch view() const { return {step, tables, inputs}; }
};

// kUnimplemented: it has more tables or inputs than a message. kInternal: it exceeds the bounds.
Status WriteStep(const ops::StepBatch& batch, const StepBounds& bounds,
                 std::vector<int32_t>* message);

// The int32s of a step's message of which the first piece is there. kInternal: the step exceeds the
// bounds.
StatusOr<size_t> StepSize(std::span<const int32_t> first_piece, const StepBounds& bounds);

// The step of a whole message, of StepSize(); borrows it.
MessageStep ReadStep(std::span<int32_t> message);

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_RANKS_STEP_MESSAGE_H_
