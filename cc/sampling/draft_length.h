// File: cc/sampling/draft_length.h
// The number of drafts of one request to verify in its next step: the number with the most tokens
// per unit of time, given how often its drafts were accepted and the cost of a step with that many
// drafts.
//
//   const std::vector<double> step_costs = {1.0, 1.1, 1.2, 1.3};  // with 0, 1, 2, 3 drafts
//   DraftLength length;                                            // one per request
//   int32_t k = length.Next(step_costs);
//   ... the step verifies num_drafts <= k drafts, and accepts num_accepted of them ...
//   length.Observe(step_costs, num_drafts, num_accepted);          // also without drafts
//
// Choice. If a draft is accepted with probability a, independently of the others, k drafts yield (1
// - a^(k+1)) / (1 - a) tokens on average (Leviathan et al., 2023, equation 1); Next() maximizes
// that over the cost of the step; k = 0 if drafts do not pay. Then one draft is tried occasionally,
// at increasing intervals while it fails, so that the request recovers if its text changes.
//
// Bound. A step uses drafts only if it is affordable even if all of them are rejected, so for any
// text the total time is at most
//   (1 + max_overhead) * (time of the same tokens without drafts) + first_credit_steps * (one
//   step):
// with the defaults 5 % more for an output of 100 tokens, 3 % in the long run. Earlier gains count
// for at most max_credit_steps, so with those instead of first_credit_steps the bound holds from
// any token on. Unpredictable text costs less than that, because trials become rare.
//
// The caller supplies the costs, from a measured table or a model; they may change between steps,
// for example with the number of running requests. Copyable; thread safety: none. O(drafts).
#ifndef PAGEMILL_CC_SAMPLING_DRAFT_LENGTH_H_
#define PAGEMILL_CC_SAMPLING_DRAFT_LENGTH_H_

#include <cstdint>
#include <span>

namespace pagemill::sampling {

struct DraftLengthOptions {
  double max_overhead = 0.03;       // fraction of the time without drafts
  double first_credit_steps = 2.0;  // time, in steps without drafts
  double max_credit_steps = 4.0;    // likewise; at least first_credit_steps
  // Weight of the newest draft in the estimate of acceptance: about the last 24 count. Half of it
  // comes 1 % nearer to the best length on steady text, but loses 40 % more when good text ends.
  double newest_weight = 1.0 / 24;
  int32_t max_trial_interval_steps = 64;  // between trials, while drafts do not pay
};

class DraftLength {
 public:
  explicit DraftLength(const DraftLengthOptions& options = {});

  // `step_costs[k]` is the time of a step with k drafts, including drafting, in any unit; positive,
  // not empty. Returns an index of the table.
  int32_t Next(std::span<const double> step_costs) const;

  // The step produced num_accepted + 1 tokens, at step_costs[num_drafts].
  void Observe(std::span<const double> step_costs, int32_t num_drafts, int32_t num_accepted);

  // Estimated probability that a draft is accepted if those before it are.
  double acceptance() const { return acceptance_; }

  // Aborts if the state is inconsistent.
  void CheckIntegrity() const;

 private:
  void CountDraft(bool accepted);

  DraftLengthOptions options_;
  double acceptance_ = 0.5;
  int32_t num_drafts_ = 0;            // counted in acceptance_
  double credit_;                     // time that may be lost, in steps without drafts; >= 0
  int32_t trial_interval_ = 1;        // steps
  int32_t steps_without_drafts_ = 0;  // in a row
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_DRAFT_LENGTH_H_
