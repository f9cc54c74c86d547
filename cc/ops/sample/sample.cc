#include "cc/ops/sample/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace pagemill::ops {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token_id < b.token_id);
}

// A row of logits with its passes and storage.
struct Row {
  const RowPasses& passes;
  std::span<const float> logits;
  RowWeights weights;
  std::span<Candidate> storage;

  int64_t size() const { return static_cast<int64_t>(logits.size()); }
  std::span<Candidate> Stretches() const {
    return storage.first((logits.size() + kStretch - 1) / kStretch);
  }

  // Tokens with a logit of at least `cut`, in the order of ids.
  std::span<Candidate> Gather(float cut) const {
    const int64_t found = passes.gather(logits.data(), size(), cut, storage.data());
    return storage.first(static_cast<size_t>(found));
  }

  // Stores the weight of each stretch in `storage`; returns the total weight.
  double WeighStretches() const {
    passes.stretch_weights(logits.data(), size(), weights, storage.data());
    double total = 0.0;
    for (const Candidate& stretch : Stretches()) total += double{stretch.logit};
    return total;
  }

  // Calls body(candidate, weight) until it returns false.
  template <typename Body>
  void ForWeights(std::span<const Candidate> candidates, const Body& body) const {
    std::array<float, kStretch> x, w;
    for (size_t begin = 0; begin < candidates.size(); begin += kStretch) {
      const size_t n = std::min<size_t>(kStretch, candidates.size() - begin);
      for (size_t i = 0; i < n; ++i) x[i] = candidates[begin + i].logit;
      passes.weigh(x.data(), static_cast<int64_t>(n), weights, w.data());
      for (size_t i = 0; i < n; ++i) {
        if (!body(candidates[begin + i], double{w[i]})) return;
      }
    }
  }

  double TotalWeight(std::span<const Candidate> candidates) const {
    double total = 0.0;
    ForWeights(candidates, [&](const Candidate&, double w) {
      total += w;
      return true;
    });
    return total;
  }
};

// The k-th largest logit, 1 <= k <= candidates.size(). Reorders the candidates.
float KthLargest(std::span<Candidate> candidates, int64_t k) {
  const auto kth = candidates.begin() + (k - 1);
  std::nth_element(candidates.begin(), kth, candidates.end(), MoreLikely);
  return kth->logit;
}

// A lower bound of the k-th largest logit: the k-th largest of the maxima of the stretches. -inf if
// there are fewer stretches.
float CutOfTop(const Row& row, int64_t k) {
  const std::span<Candidate> maxima = row.Stretches();
  if (k > static_cast<int64_t>(maxima.size())) return kExcluded;
  row.passes.stretch_maxima(row.logits.data(), row.size(), maxima.data());
  return KthLargest(maxima, k);
}

// A lower bound of the logits of the top-p set: tokens that weigh less than (1 - p) / vocab of the
// whole row weigh less than 1 - p of it together. Only valid if nothing else was excluded.
float CutOfTopP(const Row& row, const DrawParams& p, double total) {
  // 0.99 so that the bound also holds with rounding.
  const double weight = 0.99 * (1.0 - p.top_p) * total / static_cast<double>(row.size());
  return row.weights.max + p.temperature * static_cast<float>(std::log(weight));
}

// The least likely member of the smallest set of most likely candidates that weighs `target`: a
// selection by weight instead of by rank. Reorders the candidates, of which there is at least one.
Candidate LastOfTopP(const Row& row, std::span<Candidate> candidates, double target) {
  constexpr size_t kFewEnoughToSort = 32;
  double above = 0.0;  // weight of the candidates that are more likely than all of `rest`
  std::span<Candidate> rest = candidates;
  while (rest.size() > kFewEnoughToSort) {
    std::array<Candidate, 3> three = {rest.front(), rest[rest.size() / 2], rest.back()};
    std::sort(three.begin(), three.end(), MoreLikely);
    const Candidate pivot = three[1];
    const auto middle = std::partition(rest.begin(), rest.end(),
                                       [&](const Candidate& c) { return MoreLikely(c, pivot); });
    const std::span<Candidate> larger(rest.begin(), middle);
    const double weight = row.TotalWeight(larger);
    if (above + weight >= target) {
      rest = larger;
      continue;
    }
    above += weight + row.TotalWeight({&pivot, 1});
    if (above >= target) return pivot;
    const std::span<Candidate> others(middle, rest.end());
    std::iter_swap(others.begin(), std::find_if(others.begin(), others.end(), [&](const auto& c) {
                     return c.token_id == pivot.token_id;
                   }));
    if (others.size() == 1) return pivot;  // rounding left the sum below the target
    rest = others.subspan(1);
  }
  std::sort(rest.begin(), rest.end(), MoreLikely);
  Candidate last = rest.back();
  row.ForWeights(rest, [&](const Candidate& c, double w) {
    above += w;
    last = c;
    return above < target;
  });
  return last;
}

// Draws from the whole row: finds the stretch in which the cumulative weight passes the target,
// then the token in it.
int32_t DrawFromRow(const Row& row, const MaxEntry& max, double uniform) {
  const double target = uniform * row.WeighStretches();
  double sum = 0.0;
  for (const Candidate& stretch : row.Stretches()) {
    const double weight = stretch.logit;
    if (weight <= 0.0 || sum + weight <= target) {
      sum += weight;
      continue;
    }
    const int64_t begin = stretch.token_id * kStretch;
    const int64_t n = std::min(kStretch, row.size() - begin);
    std::array<float, kStretch> w;
    row.passes.weigh(row.logits.data() + begin, n, row.weights, w.data());
    // The last token with any weight, in case rounding leaves the sum below the target.
    int64_t last = begin;
    for (int64_t i = 0; i < n; ++i) {
      if (w[i] <= 0.0f) continue;
      last = begin + i;
      sum += double{w[i]};
      if (sum > target) break;
    }
    return static_cast<int32_t>(last);
  }
  return max.token_id;
}

// Draws from candidates in the order of ids.
int32_t DrawFrom(const Row& row, std::span<const Candidate> candidates, const MaxEntry& max,
                 double uniform) {
  const double target = uniform * row.TotalWeight(candidates);
  double sum = 0.0;
  int32_t drawn = max.token_id;  // if rounding leaves the sum below the target
  row.ForWeights(candidates, [&](const Candidate& c, double w) {
    sum += w;
    if (sum <= target) return true;
    drawn = c.token_id;
    return false;
  });
  return drawn;
}

Row RowOf(const RowPasses& passes, std::span<const float> logits, const MaxEntry& max,
          const DrawParams& params, std::span<Candidate> storage) {
  return {passes,
          logits,
          {.max = max.logit, .inverse_temperature = 1.0f / params.temperature},
          storage};
}

bool KeepsAll(const DrawParams& p) {
  return p.min_weight <= 0.0f && p.top_k <= 0 && p.top_p >= 1.0f;
}

// The tokens that min-p, top-k and top-p leave, in the order of ids. Not for KeepsAll(params).
std::span<Candidate> Keep(const Row& row, const DrawParams& params) {
  const bool limits_others = params.min_weight > 0.0f || params.top_k > 0;
  float cut = kExcluded;
  double total = 0.0;
  if (params.min_weight > 0.0f) {
    cut = row.weights.max + params.temperature * std::log(params.min_weight);
  }
  if (params.top_k > 0) cut = std::max(cut, CutOfTop(row, params.top_k));
  if (!limits_others) {
    total = row.WeighStretches();
    cut = CutOfTopP(row, params, total);
  }
  std::span<Candidate> kept = row.Gather(cut);
  // Selections lose the order of ids, so the selected tokens are gathered again.
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < kept.size()) {
    kept = row.Gather(KthLargest(kept, params.top_k));  // ties with the k-th are kept
  }
  if (params.top_p < 1.0f && !kept.empty()) {
    if (limits_others) total = row.TotalWeight(kept);
    const Candidate last = LastOfTopP(row, kept, params.top_p * total);
    kept = row.Gather(last.logit);
    const auto after = [&](const Candidate& c) { return MoreLikely(last, c); };
    kept = kept.first(
        static_cast<size_t>(std::remove_if(kept.begin(), kept.end(), after) - kept.begin()));
  }
  return kept;
}

}  // namespace

const RowPasses& ChooseRowPasses([[maybe_unused]] const device::Capabilities& caps) {
#if defined(__x86_64__)
  if (caps.cpu.avx512) return kRowPassesAvx512;
  if (caps.cpu.avx2) return kRowPassesAvx2;
#endif
  return kRowPassesPortable;
}

MaxEntry ArgMax(const RowPasses& passes, std::span<const float> logits) {
  if (logits.empty()) return {};
  return passes.arg_max(logits.data(), static_cast<int64_t>(logits.size()));
}

double LogSumExp(const RowPasses& passes, std::span<const float> logits, float max,
                 std::span<Candidate> storage) {
  const Row row{passes, logits, {.max = max, .inverse_temperature = 1.0f}, storage};
  return double{max} + std::log(row.WeighStretches());
}

int32_t RankOf(const RowPasses& passes, std::span<const float> logits, float logit) {
  const auto size = static_cast<int64_t>(logits.size());
  return static_cast<int32_t>(passes.count_above(logits.data(), size, logit)) + 1;
}

std::span<const Candidate> TopEntries(const RowPasses& passes, std::span<const float> logits,
                                      int32_t count, std::span<Candidate> storage) {
  if (count <= 0 || logits.empty()) return {};
  const Row row{passes, logits, {}, storage};
  std::span<Candidate> found;
  if (const float cut = CutOfTop(row, count); cut > kExcluded) {
    found = row.Gather(cut);
  } else {
    for (size_t i = 0; i < logits.size(); ++i) storage[i] = {logits[i], static_cast<int32_t>(i)};
    found = storage.first(logits.size());
  }
  const std::span<Candidate> top = found.first(std::min<size_t>(found.size(), count));
  if (top.size() < found.size()) {
    std::nth_element(found.begin(), found.begin() + count, found.end(), MoreLikely);
  }
  std::sort(top.begin(), top.end(), MoreLikely);
  return top;
}

int32_t DrawToken(const RowPasses& passes, std::span<const float> logits, const MaxEntry& max,
                  const DrawParams& params, std::span<Candidate> storage) {
  const Row row = RowOf(passes, logits, max, params, storage);
  if (KeepsAll(params)) return DrawFromRow(row, max, params.uniform);
  return DrawFrom(row, Keep(row, params), max, params.uniform);
}

KeptTokens WeighKept(const RowPasses& passes, std::span<const float> logits, const MaxEntry& max,
                     const DrawParams& params, std::span<Candidate> storage) {
  const Row row = RowOf(passes, logits, max, params, storage);
  const std::span<Candidate> kept = KeepsAll(params) ? row.Gather(kExcluded) : Keep(row, params);
  double total = 0.0;
  size_t i = 0;
  row.ForWeights(kept, [&](const Candidate&, double w) {
    kept[i++].logit = static_cast<float>(w);
    total += w;
    return true;
  });
  return {.tokens = kept, .total = total};
}

}  // namespace pagemill::ops
