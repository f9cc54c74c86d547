// The reference of `moe_route`: scores in double, one search for the best expert per choice.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cc/ops/moe_route/moe_route.h"

namespace pagemill::ops::moe_route {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void Score(const Args& args, const float* logits, double* scores) {
  const double largest = *std::max_element(logits, logits + args.experts, [](float a, float b) {
    return std::isnan(a) ? !std::isnan(b) : a < b;
  });
  if (args.scoring == Scoring::kSqrtSoftplus) {
    for (int64_t e = 0; e < args.experts; ++e) {
      const double x = logits[e];
      scores[e] = std::sqrt(std::fmax(x, 0) + std::log1p(std::exp(-std::abs(x))));
    }
    return;
  }
  double sum = 0;
  for (int64_t e = 0; e < args.experts; ++e) {
    scores[e] = args.scoring == Scoring::kSigmoid ? 1 / (1 + std::exp(-double{logits[e]}))
                                                  : std::exp(logits[e] - largest);
    sum += scores[e];
  }
  if (args.scoring == Scoring::kSigmoid) return;
  for (int64_t e = 0; e < args.experts; ++e) scores[e] /= sum;
}

// The score of choice j by SparseMixer.
double Mix(const Args& args, const float* logits, const int32_t* ids, int64_t j) {
  const float choice = logits[ids[j]];
  if (!std::isfinite(choice)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (int64_t e = 0; e < args.experts; ++e) {
    const bool chosen = std::find(ids, ids + j, e) != ids + j;
    if (!chosen && args.IsNear(choice, logits[e])) sum += std::exp(double{logits[e]} - choice);
  }
  return 1 / sum;
}

// True if `a` precedes `b` in the order of the choice.
bool Before(double key_a, int64_t a, double key_b, int64_t b) {
  return key_a > key_b || (key_a == key_b && a < b);
}

struct Keys {
  const Args& args;
  const float* logits;
  const double* scores;

  double OfExpert(int64_t e) const {
    const double plain = args.bias == nullptr || args.logits_bias ? double{logits[e]} : scores[e];
    const double key = args.bias == nullptr ? plain : plain + args.bias[e];
    return std::isnan(key) ? -kInfinity : key;
  }
  double OfGroup(int64_t group) const {
    double best[2] = {-kInfinity, -kInfinity};
    for (int64_t e = group * args.GroupSize(); e < (group + 1) * args.GroupSize(); ++e) {
      const double value = args.bias == nullptr ? scores[e] : OfExpert(e);
      const double key = std::isnan(value) ? -kInfinity : value;
      if (key > best[0]) {
        best[1] = best[0];
        best[0] = key;
      } else {
        best[1] = std::fmax(best[1], key);
      }
    }
    return args.group_top == 1 ? best[0] : best[0] + best[1];
  }
  // True if the group is one of the group_choices best.
  bool TakesGroup(int64_t group) const {
    int64_t better = 0;
    for (int64_t g = 0; g < args.groups; ++g) {
      if (Before(OfGroup(g), g, OfGroup(group), group)) ++better;
    }
    return better < args.group_choices;
  }
};

void RouteToken(const Args& args, int64_t row, double* scores) {
  const float* const logits = args.logits.Row<const float>(row);
  int32_t* const ids = args.ids.Row<int32_t>(row);
  float* const weights = args.weights.Row<float>(row);
  Score(args, logits, scores);
  const bool known = !args.has_table() || args.LookUp(row, ids);
  const Keys keys = {args, logits, scores};
  double sum = 1e-20;
  for (int64_t j = 0; j < args.choices; ++j) {
    int64_t best = args.has_table() ? ids[j] : -1;
    for (int64_t g = 0; g < args.groups && !args.has_table(); ++g) {
      if (!keys.TakesGroup(g)) continue;
      for (int64_t e = g * args.GroupSize(); e < (g + 1) * args.GroupSize(); ++e) {
        if (std::find(ids, ids + j, e) != ids + j) continue;
        if (best < 0 || Before(keys.OfExpert(e), e, keys.OfExpert(best), best)) best = e;
      }
    }
    ids[j] = static_cast<int32_t>(best);
    if (args.scoring == Scoring::kSparseMixer) scores[best] = Mix(args, logits, ids, j);
    sum += scores[best];
  }
  const bool defined = std::none_of(logits, logits + args.experts, [](float logit) {
    return std::isnan(logit) || logit == std::numeric_limits<float>::infinity();
  });
  const bool has_number =
      std::any_of(logits, logits + args.experts, [](float logit) { return std::isfinite(logit); });
  for (int64_t j = 0; j < args.choices; ++j) {
    const double factor = args.factors == nullptr ? 1.0 : args.factors[ids[j]];
    const double weight = scores[ids[j]] / (args.renormalize ? sum : 1.0) * args.scale * factor;
    weights[j] = defined && has_number && known ? static_cast<float>(weight)
                                       : std::numeric_limits<float>::quiet_NaN();
    ids[j] -= args.first;
  }
}

}  // namespace

void RunReference(const OpCall& call, KernelContext& context) {
  const Args args = ToArgs(call);
  context.pool->ParallelFor(args.logits.shape[0], 1, [&](int64_t begin, int64_t end, int worker) {
    double* const scores =
        reinterpret_cast<double*>(context.workspace.data()) + worker * args.experts;
    for (int64_t n = begin; n < end; ++n) {
      RouteToken(args, n, scores);
    }
  });
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return num_threads * call.inputs[0].shape[1] * int64_t{sizeof(double)};
}

}  // namespace pagemill::ops::moe_route
