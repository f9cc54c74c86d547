// File: cc/sampling/penalties.h
// The tokens that occurred in a request, and their effect on its logits. Costs O(distinct tokens
// that occurred) per row, and nothing for a request without penalties.
#ifndef PAGEMILL_CC_SAMPLING_PENALTIES_H_
#define PAGEMILL_CC_SAMPLING_PENALTIES_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cc/step/request.h"

namespace pagemill::sampling {

class Penalties {
 public:
  // Records the tokens that the penalties of `request` need; ignores prompt ids outside [0,
  // vocab_size).
  void Start(const step::Request& request, int32_t vocab_size);
  void AddOutput(int32_t token_id);

  // True if Apply() changes logits.
  bool active() const { return repetition_ != 1.0f || counts_outputs_; }
  // Repetition over prompt and outputs, then frequency and presence over outputs.
  void Apply(std::span<float> logits) const;

 private:
  float repetition_ = 1.0f;
  float frequency_ = 0.0f;
  float presence_ = 0.0f;
  bool counts_outputs_ = false;
  std::vector<int32_t> prompt_ids_;  // sorted, distinct; only for repetition
  std::unordered_map<int32_t, int32_t> output_counts_;
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_PENALTIES_H_
