#include "cc/sampling/rejection_sampler.h"

#include <algorithm>

namespace pagemill::sampling {
namespace {

double ProbabilityOf(const ops::KeptTokens& target, int32_t token_id) {
  const auto found =
      std::lower_bound(target.tokens.begin(), target.tokens.end(), token_id,
                       [](const ops::Candidate& token, int32_t id) { return token.token_id < id; });
  if (found == target.tokens.end() || found->token_id != token_id) return 0.0;
  return double{found->logit} / target.total;
}

// Draws by inverse cumulative distribution; weight(token) is at least 0, `total` their sum.
template <typename Weight>
int32_t DrawBy(std::span<const ops::Candidate> tokens, double total, double uniform,
               const Weight& weight) {
  double sum = 0.0;
  int32_t drawn = tokens.front().token_id;
  for (const ops::Candidate& token : tokens) {
    const double w = weight(token);
    if (w <= 0.0) continue;
    drawn = token.token_id;  // the last with weight > 0 if rounding leaves the sum too small
    sum += w;
    if (sum > uniform * total) break;
  }
  return drawn;
}

}  // namespace

int32_t DrawDraft(const ops::KeptTokens& drafter, double uniform, std::span<float> probabilities) {
  std::fill(probabilities.begin(), probabilities.end(), 0.0f);
  for (const ops::Candidate& token : drafter.tokens) {
    probabilities[token.token_id] = static_cast<float>(double{token.logit} / drafter.total);
  }
  return DrawBy(drafter.tokens, drafter.total, uniform,
                [](const ops::Candidate& token) { return double{token.logit}; });
}

int32_t VerifyDraft(const ops::KeptTokens& target, const DrawnDraft& draft,
                    const VerificationNumbers& numbers) {
  const double p = ProbabilityOf(target, draft.token_id);
  if (numbers.acceptance * double{draft.probabilities[draft.token_id]} < p) return draft.token_id;
  const auto residual = [&](const ops::Candidate& token) {
    return double{token.logit} / target.total - double{draft.probabilities[token.token_id]};
  };
  double total = 0.0;
  for (const ops::Candidate& token : target.tokens) total += std::max(0.0, residual(token));
  if (total > 0.0) return DrawBy(target.tokens, total, numbers.residual, residual);
  // The residual is empty if p is nowhere larger than q, by rounding: then p and q are equal.
  return DrawBy(target.tokens, target.total, numbers.residual,
                [](const ops::Candidate& token) { return double{token.logit}; });
}

}  // namespace pagemill::sampling
