#include "cc/ops/sample/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cc/ops/exp.h"

namespace pagemill::ops {
namespace {

// Rows are walked in groups of this many lanes, in a form that compilers vectorize for any ISA.
constexpr int64_t kLanes = 16;

bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token_id < b.token_id);
}

// Keeps tokens with a logit >= `cut`, in id order. A cut of -inf still drops excluded tokens.
std::span<Candidate> Gather(std::span<const float> logits, float cut,
                            std::span<Candidate> storage) {
  size_t n = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= cut && logits[i] > -std::numeric_limits<float>::infinity()) {
      storage[n++] = {logits[i], static_cast<int32_t>(i)};
    }
  }
  return storage.first(n);
}

// Drops candidates below the k-th largest logit; equals of the k-th stay. The order is not kept.
std::span<Candidate> KeepTopK(std::span<Candidate> kept, int32_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= kept.size()) return kept;
  std::nth_element(kept.begin(), kept.begin() + (k - 1), kept.end(), MoreLikely);
  const float cut = kept[k - 1].logit;
  const auto end = std::partition(kept.begin() + k, kept.end(),
                                  [cut](const Candidate& c) { return c.logit == cut; });
  return kept.first(static_cast<size_t>(end - kept.begin()));
}

double Weight(const Candidate& c, float max, float inv_temperature) {
  return Exp((c.logit - max) * inv_temperature);
}

double TotalWeight(std::span<const Candidate> kept, float max, float inv_temperature) {
  double total = 0.0;
  for (const Candidate& c : kept) total += Weight(c, max, inv_temperature);
  return total;
}

// Weights of one group of lanes, the tail of the row included.
double GroupWeight(std::span<const float> logits, size_t begin, float max, float inv_temperature) {
  std::array<float, kLanes> w{};
  const size_t n = std::min<size_t>(kLanes, logits.size() - begin);
  if (n == kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) w[j] = Exp((logits[begin + j] - max) * inv_temperature);
  } else {
    for (size_t j = 0; j < n; ++j) w[j] = Exp((logits[begin + j] - max) * inv_temperature);
  }
  for (int64_t step = kLanes / 2; step > 0; step /= 2) {
    for (int64_t j = 0; j < step; ++j) w[j] += w[j + step];
  }
  return w[0];
}

double RowWeight(std::span<const float> logits, float max, float inv_temperature) {
  double total = 0.0;
  for (size_t i = 0; i < logits.size(); i += kLanes) {
    total += GroupWeight(logits, i, max, inv_temperature);
  }
  return total;
}

// A logit that at least k tokens reach: the k-th largest of the maxima of k or more equal stretches
// of the row. `maxima` is storage for them. -inf where the row is too short for that to pay.
float TopKCut(std::span<const float> logits, int32_t k, std::span<Candidate> maxima) {
  constexpr size_t kStretch = 4 * kLanes;
  const size_t stretches = logits.size() / kStretch;
  if (k <= 0 || stretches < static_cast<size_t>(k)) return -std::numeric_limits<float>::infinity();
  for (size_t s = 0; s < stretches; ++s) {
    const float* x = logits.data() + s * kStretch;
    std::array<float, kLanes> best;
    std::copy_n(x, kLanes, best.begin());
    for (size_t i = kLanes; i < kStretch; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
    }
    maxima[s] = {*std::max_element(best.begin(), best.end()), static_cast<int32_t>(s)};
  }
  std::nth_element(maxima.begin(), maxima.begin() + (k - 1),
                   maxima.begin() + static_cast<int64_t>(stretches), MoreLikely);
  return maxima[k - 1].logit;
}

// A logit that every member of the top-p set reaches: tokens that weigh less than (1 - p) / vocab
// of the whole row weigh less than 1 - p of it together. Only valid where nothing else was
// excluded.
float TopPCut(std::span<const float> logits, const MaxEntry& max, const DrawParams& p) {
  if (p.top_p >= 1.0f) return -std::numeric_limits<float>::infinity();
  const double total = RowWeight(logits, max.logit, 1.0f / p.temperature);
  // 0.99: the bound must hold under rounding too.
  const double weight = 0.99 * (1.0 - p.top_p) * total / static_cast<double>(logits.size());
  return max.logit + p.temperature * static_cast<float>(std::log(weight));
}

// Draws from the whole row: finds the group in which the cumulated weight passes, then the token in
// it.
int32_t DrawFromRow(std::span<const float> logits, const MaxEntry& max, const DrawParams& p) {
  const float inv_temperature = 1.0f / p.temperature;
  const double target = p.uniform * RowWeight(logits, max.logit, inv_temperature);
  double sum = 0.0;
  int32_t last =
      max.token_id;  // the last token with any weight, should rounding leave sum below target
  for (size_t i = 0; i < logits.size(); i += kLanes) {
    const double group = GroupWeight(logits, i, max.logit, inv_temperature);
    if (group > 0.0 && sum + group > target) {
      const size_t end = std::min(logits.size(), i + kLanes);
      for (size_t t = i; t < end; ++t) {
        const double w = Exp((logits[t] - max.logit) * inv_temperature);
        if (w > 0.0) last = static_cast<int32_t>(t);
        sum += w;
        if (w > 0.0 && sum > target) return last;
      }
      return last;
    }
    sum += group;
  }
  return last;
}

// Drops all but the smallest set of most likely candidates that weighs `target`. Sorts prefixes of
// growing size, because the set is nearly always small.
std::span<Candidate> KeepTopP(std::span<Candidate> kept, double target, float max,
                              float inv_temperature) {
  double sum = 0.0;
  size_t sorted = 0;
  size_t chunk = 64;
  while (sorted < kept.size()) {
    const size_t end = std::min(kept.size(), sorted + chunk);
    const auto begin_it = kept.begin() + static_cast<int64_t>(sorted);
    const auto end_it = kept.begin() + static_cast<int64_t>(end);
    if (end < kept.size()) std::nth_element(begin_it, end_it, kept.end(), MoreLikely);
    std::sort(begin_it, end_it, MoreLikely);
    for (size_t i = sorted; i < end; ++i) {
      sum += Weight(kept[i], max, inv_temperature);
      if (sum >= target) return kept.first(i + 1);
    }
    sorted = end;
    chunk *= 4;
  }
  return kept;
}

}  // namespace

MaxEntry ArgMax(std::span<const float> logits) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  std::array<float, kLanes> best;
  best.fill(kLowest);
  std::array<int32_t, kLanes> nan{};
  const size_t body = logits.size() / kLanes * kLanes;
  const float* x = logits.data();
  for (size_t i = 0; i < body; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
      nan[j] |= x[i + j] != x[i + j] ? 1 : 0;
    }
  }
  float max = kLowest;
  bool bad = false;
  for (int64_t j = 0; j < kLanes; ++j) {
    max = std::max(max, best[j]);
    bad = bad || nan[j] != 0;
  }
  for (size_t i = body; i < logits.size(); ++i) {
    max = std::max(max, x[i]);
    bad = bad || std::isnan(x[i]);
  }
  if (bad || !std::isfinite(max)) return {};
  const auto it = std::find(logits.begin(), logits.end(), max);
  return {static_cast<int32_t>(it - logits.begin()), max};
}

double LogSumExp(std::span<const float> logits, float max) {
  return double{max} + std::log(RowWeight(logits, max, 1.0f));
}

int32_t RankOf(std::span<const float> logits, float logit) {
  int32_t larger = 0;
  for (float x : logits) larger += x > logit ? 1 : 0;
  return larger + 1;
}

std::span<const Candidate> TopEntries(std::span<const float> logits, int32_t count,
                                      std::span<Candidate> storage) {
  for (size_t i = 0; i < logits.size(); ++i) storage[i] = {logits[i], static_cast<int32_t>(i)};
  std::span<Candidate> all = storage.first(logits.size());
  const size_t n = std::min<size_t>(static_cast<size_t>(std::max(count, 0)), all.size());
  if (n < all.size()) {
    std::nth_element(all.begin(), all.begin() + static_cast<int64_t>(n), all.end(), MoreLikely);
  }
  std::sort(all.begin(), all.begin() + static_cast<int64_t>(n), MoreLikely);
  return all.first(n);
}

int32_t DrawToken(std::span<const float> logits, const MaxEntry& max, const DrawParams& params,
                  std::span<Candidate> storage) {
  const bool whole_row = params.min_p <= 0.0f && params.top_k <= 0 && params.top_p >= 1.0f;
  if (whole_row) return DrawFromRow(logits, max, params);
  const float inv_temperature = 1.0f / params.temperature;
  float cut = -std::numeric_limits<float>::infinity();
  if (params.min_p > 0.0f) cut = max.logit + params.temperature * std::log(params.min_p);
  if (params.top_k > 0) {
    cut = std::max(cut, TopKCut(logits, params.top_k, storage));
  } else if (params.min_p <= 0.0f) {
    cut = std::max(cut, TopPCut(logits, max, params));
  }
  std::span<Candidate> kept = KeepTopK(Gather(logits, cut, storage), params.top_k);
  if (params.top_p < 1.0f) {
    const bool excluded = params.min_p > 0.0f || params.top_k > 0;
    const double total = excluded ? TotalWeight(kept, max.logit, inv_temperature)
                                  : RowWeight(logits, max.logit, inv_temperature);
    kept = KeepTopP(kept, params.top_p * total, max.logit, inv_temperature);
  }
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.token_id < b.token_id; });
  const double target = params.uniform * TotalWeight(kept, max.logit, inv_temperature);
  double sum = 0.0;
  for (const Candidate& c : kept) {
    sum += Weight(c, max.logit, inv_temperature);
    if (sum > target) return c.token_id;
  }
  return max.token_id;  // rounding left the sum below the target
}

}  // namespace pagemill::ops
