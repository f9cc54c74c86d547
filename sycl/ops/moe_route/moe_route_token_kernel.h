#ifndef PAGEMILL_SYCL_OPS_MOE_ROUTE_MOE_ROUTE_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_MOE_ROUTE_MOE_ROUTE_TOKEN_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/moe_route/moe_route_params.h"

// The scores and keys of a row's experts (cc/ops/moe_route/moe_route.h).
struct Experts {
  const MoeRouteParams& p;
  const float* logits;
  float largest, sum;  // of the softmax

  Experts(const MoeRouteParams& params, int64_t row)
      : p(params), logits(params.logits.Row<const float>(row)), largest(-kInfinity), sum(0) {
    for (int32_t e = 0; e < p.experts; ++e) largest = sycl::fmax(largest, logits[e]);
    for (int32_t e = 0; e < p.experts; ++e) sum += sycl::exp(logits[e] - largest);
  }

  bool AreDefined() const { return sycl::isfinite(largest) && !sycl::isnan(sum); }
  float Score(int32_t e) const {
    if (p.sqrt_softplus) {
      const float x = logits[e];  // below -15, e^(x / 2) to the last bit but one
      if (x < -15) return sycl::exp(x / 2);
      return sycl::sqrt(sycl::fmax(x, 0.0f) + sycl::log1p(sycl::exp(-sycl::fabs(x))));
    }
    return p.sigmoid ? 1 / (1 + sycl::exp(-logits[e])) : sycl::exp(logits[e] - largest) / sum;
  }
  float Key(int32_t e) const {
    float key = p.bias == nullptr || p.logits_bias ? logits[e] : Score(e);
    if (p.bias != nullptr) key += p.bias[e];
    return sycl::isnan(key) ? -kInfinity : key;
  }
  float GroupKey(int32_t group) const {
    const int32_t size = p.experts / p.groups;
    float best = -kInfinity, second = -kInfinity;
    for (int32_t e = group * size; e < (group + 1) * size; ++e) {
      const float value = p.bias == nullptr ? Score(e) : Key(e);
      const float key = sycl::isnan(value) ? -kInfinity : value;
      second = sycl::fmax(second, sycl::fmin(best, key));
      best = sycl::fmax(best, key);
    }
    return p.group_top == 1 ? best : best + second;
  }
};

inline bool IsAmong(const int32_t* ids, int32_t count, int32_t e) {
  for (int32_t j = 0; j < count; ++j) {
    if (ids[j] == e) return true;
  }
  return false;
}

// Bit g: experts are chosen from group g. Among equal keys the lower group wins.
inline uint64_t BestGroups(const Experts& experts) {
  const MoeRouteParams& p = experts.p;
  if (p.groups == p.group_choices) return ~uint64_t{0};
  float keys[kMaxExpertGroups];
  for (int32_t g = 0; g < p.groups; ++g) keys[g] = experts.GroupKey(g);
  uint64_t groups = 0;
  for (int32_t g = 0; g < p.groups; ++g) {
    int32_t better = 0;
    for (int32_t o = 0; o < p.groups; ++o) {
      better += keys[o] > keys[g] || (keys[o] == keys[g] && o < g) ? 1 : 0;
    }
    if (better < p.group_choices) groups |= uint64_t{1} << g;
  }
  return groups;
}

// The score of choice j by SparseMixer.
inline float Mix(const Experts& experts, const int32_t* ids, int32_t j) {
  const float choice = experts.logits[ids[j]];
  float sum = 0;
  for (int32_t e = 0; e < experts.p.experts; ++e) {
    const float logit = experts.logits[e];
    const bool near =
        !(choice - logit > experts.p.tolerance * sycl::fmax(sycl::fabs(logit), choice));
    if (near && !IsAmong(ids, j, e)) sum += sycl::exp(logit - choice);
  }
  return sycl::isfinite(choice) ? 1 / sum : __builtin_nanf("");
}

// A work-item for each row.
PAGEMILL_KERNEL void moe_route_kernel(MoeRouteParams p) {
  const int64_t row = GlobalId();
  if (row >= p.rows) return;
  const Experts experts(p, row);
  int32_t* ids = p.ids.Row<int32_t>(row);
  float* weights = p.weights.Row<float>(row);
  const uint64_t groups = BestGroups(experts);
  const int32_t group_size = p.experts / p.groups;
  const float* const listed =
      p.has_table ? p.table.Row<const float>(*p.token_ids.Row<const int32_t>(row)) : nullptr;
  bool defined = experts.AreDefined();
  float sum = 1e-20f;
  for (int32_t j = 0; j < p.choices; ++j) {
    int32_t best = -1;
    float best_key = 0;
    if (p.has_table) {
      const bool exists = listed[j] > -1 && listed[j] < static_cast<float>(p.experts);
      defined &= exists;
      best = exists ? static_cast<int32_t>(listed[j]) : 0;
    }
    for (int32_t e = 0; e < p.experts && !p.has_table; ++e) {
      if ((groups >> e / group_size & 1) == 0 || IsAmong(ids, j, e)) continue;
      const float key = experts.Key(e);
      if (best >= 0 && !(key > best_key)) continue;
      best = e;
      best_key = key;
    }
    ids[j] = best;
    weights[j] = p.sparse_mixer ? Mix(experts, ids, j) : experts.Score(best);
    sum += weights[j];
  }
  for (int32_t j = 0; j < p.choices; ++j) {
    const float factor = p.factors == nullptr ? p.scale : p.scale * p.factors[ids[j]];
    weights[j] =
        defined ? weights[j] / (p.renormalize ? sum : 1.0f) * factor : __builtin_nanf("");
    ids[j] -= p.first;
  }
}

#endif  // PAGEMILL_SYCL_OPS_MOE_ROUTE_MOE_ROUTE_TOKEN_KERNEL_H_
