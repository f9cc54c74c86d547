// File: cc/sampling/penalties.h
// The tokens that occurred in a request, and their effect on its logits. Costs O(distinct tokens
// that occurred) per row, and nothing for a request without penalties. An executor that applies
// penalties keeps its own count (cc/ops/count_tokens): CountUpTo() lists what to count.
#ifndef PAGEMILL_CC_SAMPLING_PENALTIES_H_
#define PAGEMILL_CC_SAMPLING_PENALTIES_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cc/ops/sample/row_adjustments.h"
#include "cc/sampling/step_adjustments.h"
#include "cc/step/request.h"

namespace pagemill::sampling {

class Penalties {
 public:
  // Records the tokens that the penalties of `request` need; ignores prompt ids outside [0,
  // vocab_size), and those of media items.
  void Start(const step::Request& request, int32_t vocab_size);
  void AddOutput(int32_t token_id);

  // True if Apply() changes logits.
  bool active() const { return counts_outputs_; }
  // Repetition over prompt and outputs, then frequency and presence over outputs.
  void Apply(std::span<float> logits) const;

  // What Apply() does, for an executor.
  ops::RowPenalties OfRow(int32_t row, int32_t slot) const;
  // Lists what an executor has to count in `slot` to have counted `num_outputs` outputs, of which
  // the last is the step's token `input`: that one if it has counted the others, else those that it
  // lacks, or, if they are more than 32, all. The host knows these (AddOutput()), unless a step has
  // failed, whose requests are dropped.
  void CountUpTo(int32_t num_outputs, int32_t slot, int32_t input, StepAdjustments* to);

 private:
  void CountFrom(size_t first, size_t end, int32_t slot, StepAdjustments* to) const;
  void CountAll(int32_t slot, StepAdjustments* to) const;

  ops::RowPenalties penalties_;  // of any row and slot
  bool counts_outputs_ = false;
  std::vector<int32_t> prompt_ids_;  // sorted, distinct; only for repetition
  std::vector<int32_t> outputs_;     // in their order
  std::unordered_map<int32_t, int32_t> output_counts_;
  static constexpr int32_t kNothing = -1;
  int32_t num_counted_ = kNothing;  // outputs that the executor has counted, behind the prompt
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_PENALTIES_H_
