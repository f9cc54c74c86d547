// File: cc/runner/draft_inputs/draft_states.h
// What a draft head reads besides tokens: beside each token the state of the token before it, a row
// of the target's output "draft_states", or of its own behind drafts, which the target has not
// computed.
//
//   DraftStates states({.width = 4096, .type = DType::kBF16, .num_slots = 128});
//   states.Start(slot, /*num_computed=*/0);
//   states.Append(slot, target_output, /*first_row=*/0, /*count=*/7);   // of tokens 0..6
//   states.BeginStep(/*num_drafts=*/4);
//   states.BeginPass();
//   states.AddToPass(slot, /*position=*/0, /*count=*/8);  // rows of tokens 0..7: none, 0..6
//   ... the pass runs with the input view() ...
//   states.Keep(draft, head_output, row);                 // behind the token before draft + 1
//   states.AddOwnToPass(draft);
//
// A state that is not there is a row of zeros: in front of the first token, in front of the first
// one behind a cached prefix, and of tokens whose rows were dropped. It makes drafts worse, which
// are verified.
//
// Memory: the rows of tokens that wait, and one for each draft of a step. Thread safety: none.
#ifndef PAGEMILL_CC_RUNNER_DRAFT_INPUTS_DRAFT_STATES_H_
#define PAGEMILL_CC_RUNNER_DRAFT_INPUTS_DRAFT_STATES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

// The target's output [tokens, width], the head's input [tokens, width] and its output
// [logits_rows, width].
inline constexpr std::string_view kDraftStates = "draft_states";

struct DraftStatesOptions {
  int32_t width = 1;
  DType type = DType::kF32;
  int32_t num_slots = 1;
};

class DraftStates {
 public:
  explicit DraftStates(const DraftStatesOptions& options);

  // The first `num_computed` tokens of the slot's request have no states here.
  void Start(int32_t slot, int32_t num_computed);
  // The states of the slot's next tokens: rows [first_row, first_row + count).
  void Append(int32_t slot, const TensorView& states, int64_t first_row, int32_t count);
  // Those of earlier tokens are not needed any more.
  void DropBefore(int32_t slot, int32_t token);
  // Tokens that the target has computed.
  int32_t num_tokens(int32_t slot) const;
  // Memory of the slot's rows.
  size_t bytes(int32_t slot) const;

  // `num_drafts` of the step may be kept.
  void BeginStep(size_t num_drafts);
  void BeginPass() { pass_.clear(); }
  // Rows for tokens [position, position + count) of the slot.
  void AddToPass(int32_t slot, int32_t position, int32_t count);
  // The row that was kept of draft `draft`.
  void AddOwnToPass(size_t draft);
  // Row `row` of the head's output, which gave draft `draft`.
  void Keep(size_t draft, const TensorView& states, int64_t row);
  // [tokens of the pass, width]; valid until the next AddToPass().
  TensorView view();

  // True if `states` is an output with at least `rows` rows.
  bool Fits(const TensorView& states, int64_t rows) const;

 private:
  struct Slot {
    int32_t first = 0;  // the token of the first row
    std::vector<std::byte> rows;
  };
  int32_t NumRows(const Slot& slot) const {
    return static_cast<int32_t>(slot.rows.size() / row_bytes_);
  }

  const DraftStatesOptions options_;
  const size_t row_bytes_;
  std::vector<Slot> slots_;
  std::vector<std::byte> own_;   // [drafts of the step]
  std::vector<std::byte> pass_;  // [tokens of the pass]
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_DRAFT_INPUTS_DRAFT_STATES_H_
