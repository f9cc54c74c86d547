#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cc/ops/sample/sample.h"

namespace pagemill::ops::reference {
namespace {

std::vector<Candidate> Sorted(std::span<const float> logits) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({logits[i], static_cast<int32_t>(i)});
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  return all;
}

}  // namespace

MaxEntry ArgMax(std::span<const float> logits) {
  MaxEntry best;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) return {};
    if (std::isinf(logits[i])) continue;
    if (best.token_id < 0 || logits[i] > best.logit) best = {static_cast<int32_t>(i), logits[i]};
  }
  return best;
}

double LogSumExp(std::span<const float> logits, float max) {
  double sum = 0.0;
  for (float x : logits) sum += std::exp(double{x} - double{max});
  return double{max} + std::log(sum);
}

int32_t RankOf(std::span<const float> logits, float logit) {
  return 1 + static_cast<int32_t>(std::count_if(logits.begin(), logits.end(),
                                                [logit](float x) { return x > logit; }));
}

std::span<const Candidate> TopEntries(std::span<const float> logits, int32_t count,
                                      std::span<Candidate> storage) {
  const std::vector<Candidate> all = Sorted(logits);
  const size_t n = std::min<size_t>(static_cast<size_t>(std::max(count, 0)), all.size());
  std::copy_n(all.begin(), n, storage.begin());
  return storage.first(n);
}

int32_t DrawToken(std::span<const float> logits, const MaxEntry& max, const DrawParams& params,
                  std::span<Candidate>) {
  std::vector<Candidate> kept = Sorted(logits);
  const auto weight = [&](const Candidate& c) {
    return std::exp((double{c.logit} - double{max.logit}) / double{params.temperature});
  };
  std::erase_if(kept, [&](const Candidate& c) {
    return weight(c) == 0.0 || weight(c) < double{params.min_weight};
  });
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < kept.size()) {
    const float cut = kept[params.top_k - 1].logit;
    std::erase_if(kept, [cut](const Candidate& c) { return c.logit < cut; });
  }
  double total = 0.0;
  for (const Candidate& c : kept) total += weight(c);
  if (params.top_p < 1.0f) {
    double sum = 0.0;
    size_t n = 0;
    while (n < kept.size() && sum < double{params.top_p} * total) sum += weight(kept[n++]);
    kept.resize(n);
    total = sum;
  }
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.token_id < b.token_id; });
  double sum = 0.0;
  for (const Candidate& c : kept) {
    sum += weight(c);
    if (sum > params.uniform * total) return c.token_id;
  }
  return kept.back().token_id;
}

}  // namespace pagemill::ops::reference
