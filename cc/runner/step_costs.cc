#include "cc/runner/step_costs.h"

#include <algorithm>
#include <bit>

namespace pagemill::runner {
namespace {

constexpr double kWeightOfFaster = 0.25;
constexpr double kWeightOfSlower = 0.04;
constexpr int32_t kFirstSteps = 3;
constexpr double kTokensOfAStep = 9.0;  // what the weights cost, in tokens

// The affine guess: time in proportion to kTokensOfAStep + tokens.
double Extrapolate(double seconds, int32_t from_tokens, int32_t to_tokens) {
  return seconds * (kTokensOfAStep + to_tokens) / (kTokensOfAStep + from_tokens);
}

}  // namespace

size_t StepCosts::SizeOf(int32_t num_tokens) {
  const auto n = static_cast<uint32_t>(num_tokens);
  if (n < 16) return n;
  const int power = std::bit_width(n) - 1;  // at least 4
  return static_cast<size_t>(16 + (power - 4) * 8 + static_cast<int>(n >> (power - 3) & 7u));
}

int32_t StepCosts::TokensOf(size_t size) {
  if (size < 16) return static_cast<int32_t>(size);
  const size_t power = 4 + (size - 16) / 8;
  return static_cast<int32_t>((8 + (size - 16) % 8) << (power - 3));
}

void StepCosts::Observe(int32_t num_tokens, double seconds) {
  const size_t size = SizeOf(num_tokens);
  if (sizes_.size() <= size) sizes_.resize(size + 1);
  Size& observed = sizes_[size];
  if (observed.num_steps < kFirstSteps) {
    const bool first = observed.num_steps++ == 0;
    observed.seconds = first ? seconds : std::min(observed.seconds, seconds);
    fewest_steps_ = std::max(fewest_steps_, observed.num_steps == kFirstSteps ? kFirstSteps : 1);
    return;
  }
  const double weight = seconds < observed.seconds ? kWeightOfFaster : kWeightOfSlower;
  observed.seconds += weight * (seconds - observed.seconds);
}

double StepCosts::Of(int32_t num_tokens) const {
  // The nearest sizes with a step, of which the smaller ones cost at most what larger ones do.
  const size_t size = SizeOf(num_tokens);
  double below = 0.0, above = 0.0;
  size_t size_below = 0, size_above = 0;
  for (size_t i = sizes_.size(); i-- > 0;) {
    if (sizes_[i].num_steps < fewest_steps_) continue;
    const double seconds = above > 0.0 && above < sizes_[i].seconds ? above : sizes_[i].seconds;
    if (i >= size) {
      above = seconds;
      size_above = i;
    } else {
      below = seconds;
      size_below = i;
      break;
    }
  }
  if (size_above == size && above > 0.0) return above;
  if (below == 0.0 && above == 0.0) return Extrapolate(1.0, 1, num_tokens);
  if (above == 0.0) return Extrapolate(below, TokensOf(size_below), num_tokens);
  if (below == 0.0) return Extrapolate(above, TokensOf(size_above), num_tokens);
  const double share = static_cast<double>(num_tokens - TokensOf(size_below)) /
                       (TokensOf(size_above) - TokensOf(size_below));
  return below + share * (above - below);
}

}  // namespace pagemill::runner
