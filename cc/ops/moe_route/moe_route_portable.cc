// `moe_route` in loops that compilers vectorize; the choice is one pass with insertion.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cc/ops/exp.h"
#include "cc/ops/moe_route/moe_route.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops::moe_route {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kLanes = 16;

// The best indices so far, best first. Indices are offered in ascending order, so that among equal
// keys the lower index stays first.
class Best {
 public:
  Best(const float* keys, int64_t most, int32_t* ids) : keys_(keys), most_(most), ids_(ids) {}

  void Offer(int64_t id) {
    const float key = keys_[id];
    if (count_ == most_ && !(key > keys_[ids_[most_ - 1]])) return;
    int64_t at = count_ < most_ ? count_++ : most_ - 1;
    for (; at > 0 && key > keys_[ids_[at - 1]]; --at) ids_[at] = ids_[at - 1];
    ids_[at] = static_cast<int32_t>(id);
  }

 private:
  const float* keys_;
  int64_t most_;
  int32_t* ids_;
  int64_t count_ = 0;
};

// Scratch of one token, in the workspace of a thread.
struct Scratch {
  float* scores;       // [experts]
  float* keys;         // [experts]
  float* group_keys;   // [groups]
  int32_t* group_ids;  // [groups]
};

int64_t ScratchFloats(const Args& args) {
  return (2 * args.experts + 2 * args.groups + kLanes - 1) / kLanes * kLanes;
}

Scratch ScratchOf(const Args& args, KernelContext& context, int worker) {
  float* const at =
      reinterpret_cast<float*>(context.workspace.data()) + worker * ScratchFloats(args);
  float* const group_keys = at + 2 * args.experts;
  return {at, at + args.experts, group_keys, reinterpret_cast<int32_t*>(group_keys + args.groups)};
}

// The largest logit, NaN if there is one.
float LargestLogit(const float* logits, int64_t experts) {
  float largest = -kInfinity;
  bool has_nan = false;
  for (int64_t e = 0; e < experts; ++e) {
    largest = logits[e] > largest ? logits[e] : largest;
    has_nan |= std::isnan(logits[e]);
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : largest;
}

// The square root of ln(1 + e^x); below -15 it is e^(x / 2) to the last bit but one.
float SqrtSoftplus(float x) {
  if (x < -15.0f) return Exp(x / 2);
  return std::sqrt(std::max(x, 0.0f) + std::log1p(Exp(-std::abs(x))));
}

// Unless `largest` is finite, scores are arbitrary numbers.
void Score(const Args& args, const float* logits, float largest, float* scores) {
  if (args.scoring == Scoring::kSigmoid) {
    for (int64_t e = 0; e < args.experts; ++e) scores[e] = 1.0f / (1.0f + Exp(-logits[e]));
    return;
  }
  if (args.scoring == Scoring::kSqrtSoftplus) {
    for (int64_t e = 0; e < args.experts; ++e) scores[e] = SqrtSoftplus(logits[e]);
    return;
  }
  float sums[kLanes] = {};
  for (int64_t e = 0; e < args.experts; ++e) scores[e] = Exp(logits[e] - largest);
  for (int64_t e = 0; e < args.experts; ++e) sums[e % kLanes] += scores[e];
  float sum = 0;
  for (const float part : sums) sum += part;
  for (int64_t e = 0; e < args.experts; ++e) scores[e] /= sum;
}

// The score of choice j by SparseMixer.
float Mix(const Args& args, const float* logits, const int32_t* ids, int64_t j) {
  const float choice = logits[ids[j]];
  if (!std::isfinite(choice)) return std::numeric_limits<float>::quiet_NaN();
  float sum = 0;
  for (int64_t e = 0; e < args.experts; ++e) {
    const bool chosen = std::find(ids, ids + j, e) != ids + j;
    if (!chosen && args.IsNear(choice, logits[e])) sum += Exp(logits[e] - choice);
  }
  return 1 / sum;
}

// The keys by which experts are compared; never NaN.
void MakeKeys(const Args& args, const float* logits, const Scratch& scratch) {
  for (int64_t e = 0; e < args.experts; ++e) {
    const float plain = args.bias == nullptr || args.logits_bias ? logits[e] : scratch.scores[e];
    const float key = args.bias == nullptr ? plain : plain + args.bias[e];
    scratch.keys[e] = std::isnan(key) || std::isnan(logits[e]) ? -kInfinity : key;
  }
}

// The key of a group: the sum of its best experts' scores and biases.
float GroupKey(const Args& args, const Scratch& scratch, int64_t group) {
  int32_t best[2];
  Best choice(scratch.keys, args.group_top, best);
  const int64_t first = group * args.GroupSize();
  for (int64_t e = first; e < first + args.GroupSize(); ++e) choice.Offer(e);
  float sum = 0;
  for (int64_t i = 0; i < args.group_top; ++i) {
    const int32_t e = best[i];
    sum += args.bias == nullptr ? scratch.scores[e] : scratch.keys[e];
  }
  return std::isnan(sum) ? -kInfinity : sum;
}

void Choose(const Args& args, const Scratch& scratch, int32_t* ids) {
  Best choice(scratch.keys, args.choices, ids);
  if (args.group_choices == args.groups) {
    for (int64_t e = 0; e < args.experts; ++e) choice.Offer(e);
    return;
  }
  for (int64_t g = 0; g < args.groups; ++g) scratch.group_keys[g] = GroupKey(args, scratch, g);
  Best groups(scratch.group_keys, args.group_choices, scratch.group_ids);
  for (int64_t g = 0; g < args.groups; ++g) groups.Offer(g);
  std::sort(scratch.group_ids, scratch.group_ids + args.group_choices);
  for (int64_t i = 0; i < args.group_choices; ++i) {
    const int64_t first = scratch.group_ids[i] * args.GroupSize();
    for (int64_t e = first; e < first + args.GroupSize(); ++e) choice.Offer(e);
  }
}

// The weights of the choices `ids`; NaN unless they are `defined`.
void Weigh(const Args& args, const float* logits, const float* scores, bool defined,
           const int32_t* ids, float* weights) {
  if (!defined) {
    std::fill_n(weights, args.choices, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  float sum = args.renormalize ? 1e-20f : 1.0f;
  for (int64_t j = 0; j < args.choices; ++j) {
    weights[j] = args.scoring == Scoring::kSparseMixer ? Mix(args, logits, ids, j) : scores[ids[j]];
    if (args.renormalize) sum += weights[j];
  }
  for (int64_t j = 0; j < args.choices; ++j) {
    weights[j] = weights[j] / sum * args.FactorOf(ids[j]);
  }
}

void RouteToken(const Args& args, int64_t row, const Scratch& scratch) {
  const float* const logits = args.logits.Row<const float>(row);
  int32_t* const ids = args.ids.Row<int32_t>(row);
  float* const weights = args.weights.Row<float>(row);
  const float largest = LargestLogit(logits, args.experts);
  Score(args, logits, largest, scratch.scores);
  bool known = true;
  if (args.has_table()) {
    known = args.LookUp(row, ids);
  } else {
    MakeKeys(args, logits, scratch);
    Choose(args, scratch, ids);
  }
  Weigh(args, logits, scratch.scores, std::isfinite(largest) && known, ids, weights);
  for (int64_t j = 0; j < args.choices; ++j) ids[j] -= args.first;
}

}  // namespace

void RunPortable(const OpCall& call, KernelContext& context) {
  const Args args = ToArgs(call);
  // An expert costs about eight times an element of elementwise work.
  const int64_t grain = RowsPerChunk(8 * args.experts);
  context.pool->ParallelFor(args.logits.shape[0], grain,
                            [&](int64_t begin, int64_t end, int worker) {
                              const Scratch scratch = ScratchOf(args, context, worker);
                              for (int64_t n = begin; n < end; ++n) RouteToken(args, n, scratch);
                            });
}

int64_t PortableWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return num_threads * ScratchFloats(ToArgs(call)) * int64_t{sizeof(float)};
}

}  // namespace pagemill::ops::moe_route
