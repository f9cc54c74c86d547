// File: cc/sampling/draft_length.h
// How many drafts of one request are worth verifying in its next step: as many as give the most
// tokens in a unit of time, judged by how often its drafts were accepted and by what a step with so
// many drafts costs.
//
//   const std::vector<double> step_costs = {1.0, 1.1, 1.2, 1.3};  // with 0, 1, 2, 3 drafts
//   DraftLength length;                                            // of one request
//   int32_t k = length.Next(step_costs);
//   ... the step verifies num_drafts <= k drafts, and accepts num_accepted of them ...
//   length.Observe(step_costs, num_drafts, num_accepted);          // also if there were none
//
// Choice. If a draft is accepted with probability a and independently of the others, k drafts give
// (1 - a^(k+1)) / (1 - a) tokens on average (Leviathan et al., 2023, equation 1); that over the
// cost of the step is largest for some k, 0 if drafts do not pay. Then one draft is tried now and
// then, ever more rarely while it fails, so that the request recovers if its text changes.
//
// Bound. A step with drafts is only made if it can be afforded should all of them be rejected, so
// on any text the time spent is never more than
//   (1 + max_overhead) * (time of the same tokens without drafts) + first_credit_steps * (one
//   step):
// with the defaults 5 % more for an output of 100 tokens, 3 % in the long run. What drafts gained
// earlier counts for at most max_credit_steps, so with those in place of first_credit_steps the
// bound holds from any token on. Text that cannot be guessed costs less than that, for trials
// become rare.
//
// Costs are the caller's, from a table that was measured or from a model; they may change from step
// to step, as with the number of requests that run. Copyable; thread safety: none. O(drafts).
#ifndef PAGEMILL_CC_SAMPLING_DRAFT_LENGTH_H_
#define PAGEMILL_CC_SAMPLING_DRAFT_LENGTH_H_

#include <cstdint>
#include <span>

namespace pagemill::sampling {

struct DraftLengthOptions {
  double max_overhead = 0.03;       // of the time without drafts
  double first_credit_steps = 2.0;  // time, in steps without drafts
  double max_credit_steps = 4.0;    // the same; at least first_credit_steps
  // Weight of the newest draft in the estimate of acceptance: about the last 24 count. Half of it
  // comes 1 % nearer to the best length on steady text, and loses 40 % more when good text ends.
  double newest_weight = 1.0 / 24;
  int32_t max_trial_interval_steps = 64;  // between trials, while drafts do not pay
};

class DraftLength {
 public:
  explicit DraftLength(const DraftLengthOptions& options = {});

  // `step_costs[k]` is the time of a step with k drafts, its drafting included, in any unit; more
  // than 0, not empty. Returns a k of the table.
  int32_t Next(std::span<const double> step_costs) const;

  // The step made num_accepted + 1 tokens, at step_costs[num_drafts].
  void Observe(std::span<const double> step_costs, int32_t num_drafts, int32_t num_accepted);

  // Estimated probability that a draft is accepted if those before it are.
  double acceptance() const { return acceptance_; }

  // Aborts if its state contradicts itself.
  void CheckIntegrity() const;

 private:
  void CountDraft(bool accepted);

  DraftLengthOptions options_;
  double acceptance_ = 0.5;
  int32_t num_drafts_ = 0;            // that were counted in acceptance_
  double credit_;                     // time that may be lost, in steps without drafts; at least 0
  int32_t trial_interval_ = 1;        // steps
  int32_t steps_without_drafts_ = 0;  // in a row
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_DRAFT_LENGTH_H_
