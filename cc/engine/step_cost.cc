#include "cc/engine/step_cost.h"

#include <algorithm>

namespace pagemill::engine {
namespace {

// Amounts of work that the first guess takes to cost the same. It takes too little for decoding
// rather than too much, since the automatic limit follows from that.
constexpr double kTokens = 16, kContext = 16 * 1024;

constexpr int kNumFirst = 19;  // steps, of which the n-th has the weight 2 / (n + 1)
constexpr double kWeight = 2.0 / (kNumFirst + 1);
constexpr double kMostOver = 0.5;  // of the prediction
constexpr double kLeast = 0.5;     // of a coefficient, that a step leaves of it

double Square(double x) { return x * x; }

}  // namespace

StepWork StepWork::Of(const step::StepPlan& plan) {
  StepWork work;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const int64_t context = entry.num_computed_tokens, n = entry.num_tokens();
    if (entry.token_ids.size() == 1) {
      ++work.num_decoding;
      work.decode_tokens += n;
      work.decode_context += context + n;
    } else {
      work.prefill_tokens += n;
      work.prefill_context += n * context + n * (n + 1) / 2;
      work.longest_prefill = std::max(work.longest_prefill, context + n);
    }
  }
  return work;
}

StepCost::Vector StepCost::TermsOf(const StepWork& work) {
  return {1, static_cast<double>(work.decode_tokens) / kTokens,
          static_cast<double>(work.decode_context) / kContext,
          static_cast<double>(work.prefill_tokens) / kTokens,
          static_cast<double>(work.prefill_context) / kContext};
}

double StepCost::Micros(const StepWork& work) const {
  const Vector terms = TermsOf(work);
  double sum = 0;
  for (size_t i = 0; i < kNumTerms; ++i) sum += coefficients_[i] * terms[i];
  return sum;
}

void StepCost::Observe(const StepWork& work, int64_t duration_us) {
  if (duration_us <= 0) return;
  const auto measured = static_cast<double>(duration_us);
  const Vector terms = TermsOf(work);
  if (num_observed_ == 0) {
    double sum = 0;
    for (double term : terms) sum += term;
    coefficients_.fill(measured / sum);
  }
  const bool first = num_observed_ < kNumFirst;
  if (first) ++num_observed_;

  const double predicted = Micros(work);
  const double over = measured - predicted;
  const double weight = first ? 2.0 / (num_observed_ + 1) : kWeight;
  const double step = weight * (first ? over : std::min(over, kMostOver * predicted));
  double squares = 0;
  for (size_t i = 0; i < kNumTerms; ++i) squares += Square(coefficients_[i] * terms[i]);
  for (size_t i = 0; i < kNumTerms; ++i) {
    const double moved = step * Square(coefficients_[i]) * terms[i] / squares;
    coefficients_[i] = std::max(kLeast * coefficients_[i], coefficients_[i] + moved);
  }
}

}  // namespace pagemill::engine
