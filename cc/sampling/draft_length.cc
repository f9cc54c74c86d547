#include "cc/sampling/draft_length.h"

#include <algorithm>

#include "cc/base/status.h"

namespace pagemill::sampling {

DraftLength::DraftLength(const DraftLengthOptions& options)
    : options_(options), credit_(options.first_credit_steps) {}

int32_t DraftLength::Next(std::span<const double> step_costs) const {
  PAGEMILL_CHECK(!step_costs.empty() && step_costs[0] > 0.0);
  const auto num_costs = static_cast<int32_t>(step_costs.size());
  const auto affordable = [&](int32_t k) {  // even if all are rejected
    return step_costs[k] / step_costs[0] <= credit_ + 1.0 + options_.max_overhead;
  };
  int32_t best = 0;
  double best_speed = 1.0;         // tokens in the time of a step without drafts
  double tokens = 1.0, all = 1.0;  // expected; probability that all drafts are accepted
  for (int32_t k = 1; k < num_costs; ++k) {
    all *= acceptance_;
    tokens += all;
    const double speed = tokens * step_costs[0] / step_costs[k];
    if (speed <= best_speed || !affordable(k)) continue;
    best = k;
    best_speed = speed;
  }
  const bool tries = best == 0 && steps_without_drafts_ >= trial_interval_;
  return tries && num_costs > 1 && affordable(1) ? 1 : best;
}

void DraftLength::Observe(std::span<const double> step_costs, int32_t num_drafts,
                          int32_t num_accepted) {
  PAGEMILL_CHECK(num_drafts >= 0 && static_cast<size_t>(num_drafts) < step_costs.size());
  PAGEMILL_CHECK(num_accepted >= 0 && num_accepted <= num_drafts);
  const double cost = step_costs[num_drafts] / step_costs[0];
  credit_ += (num_accepted + 1) * (1.0 + options_.max_overhead) - cost;
  // Negative if the caller's costs rose between Next() and here.
  credit_ = std::clamp(credit_, 0.0, options_.max_credit_steps);
  if (num_drafts == 0) {
    ++steps_without_drafts_;
    return;
  }
  steps_without_drafts_ = 0;
  for (int32_t i = 0; i < num_accepted; ++i) CountDraft(true);
  if (num_accepted < num_drafts) CountDraft(false);  // the drafts after it were not verified
  trial_interval_ =
      num_accepted > 0 ? 1 : std::min(trial_interval_ * 2, options_.max_trial_interval_steps);
}

// The mean of all drafts and one of each outcome while they are few; later an exponential average.
void DraftLength::CountDraft(bool accepted) {
  ++num_drafts_;
  const double weight = std::max(options_.newest_weight, 1.0 / (num_drafts_ + 2.0));
  acceptance_ += weight * ((accepted ? 1.0 : 0.0) - acceptance_);
}

void DraftLength::CheckIntegrity() const {
  PAGEMILL_CHECK(acceptance_ >= 0.0 && acceptance_ <= 1.0);
  PAGEMILL_CHECK(credit_ >= 0.0 && credit_ <= options_.max_credit_steps);
  PAGEMILL_CHECK(trial_interval_ >= 1 && trial_interval_ <= options_.max_trial_interval_steps);
}

}  // namespace pagemill::sampling
