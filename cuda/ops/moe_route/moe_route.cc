#include "cc/ops/moe_route/moe_route.h"

#include <cmath>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

using ops::moe_route::Scoring;

constexpr int64_t kThreads = 128;
constexpr int64_t kTokens = kThreads / 32;  // of a block, at most: a warp routes a token
constexpr int64_t kMaxExperts = 2048;       // in shared memory

// How tokens are routed: moe_route::Args without the rows.
struct Router {
  const float* data;     // bias or null
  const float* factors;  // or null
  int experts, choices;
  Scoring scoring;
  float tolerance;
  bool logits_bias, renormalize;
  float scale;
  int groups, group_choices, group_top;
  int first;
  const int32_t* token_ids;  // with `table`
  Rows<const float> table;   // null if there is none

  // Of shared memory, for a token.
  constexpr int SharedWords() const { return 2 * experts + groups + 2 * choices; }
};

// An expert or group and what it is compared by.
struct Candidate {
  float key = -INFINITY;
  uint32_t index = ~0u;  // none, which precedes no other

  PAGEMILL_DEVICE bool Precedes(const Candidate& other) const {
    return key > other.key || (key == other.key && index < other.index);
  }
};

PAGEMILL_DEVICE Candidate WarpBest(Candidate own) {
  for (int bits = WarpLanes() / 2; bits > 0; bits /= 2) {
    const Candidate other = {ShuffleXor(AllLanes(), own.key, bits),
                             ShuffleXor(AllLanes(), own.index, bits)};
    if (other.Precedes(own)) own = other;
  }
  return own;
}

// The square root of ln(1 + e^x); below -15 it is e^(x / 2) to the last bit but one.
PAGEMILL_DEVICE float SqrtSoftplus(float x) {
  return x < -15 ? Exp(x / 2) : sqrtf(Softplus(x));
}

PAGEMILL_DEVICE float NumberOrLowest(float key) { return std::isnan(key) ? -INFINITY : key; }

// A token on a warp. Expert e belongs to lane e % WarpLanes().
struct TokenRouter {
  const Router& router;
  const float* logits;
  float* scores;      // [experts], shared memory
  float* keys;        // [experts], likewise; NaN once the expert cannot be chosen
  float* group_keys;  // [groups], likewise
  float* chosen;      // [choices], likewise: their scores
  int32_t* ids;       // [choices], likewise

  template <typename Visit>
  PAGEMILL_DEVICE void ForOwn(int count, const Visit& visit) const {
    for (int i = Lane(); i < count; i += WarpLanes()) visit(i);
  }

  // Returns whether the weights are numbers.
  PAGEMILL_DEVICE bool Score() const {
    float largest = -INFINITY;
    bool undefined = false, has_number = false;
    ForOwn(router.experts, [&](int e) {
      const float logit = logits[e];
      largest = fmaxf(largest, logit);
      undefined |= std::isnan(logit) || logit == INFINITY;
      has_number |= std::isfinite(logit);
    });
    largest = WarpMax(largest);
    undefined = Ballot(AllLanes(), undefined) != 0;
    has_number = Ballot(AllLanes(), has_number) != 0;
    float sum = 0;
    const bool each_by_itself =
        router.scoring == Scoring::kSigmoid || router.scoring == Scoring::kSqrtSoftplus;
    ForOwn(router.experts, [&](int e) {
      scores[e] = router.scoring == Scoring::kSigmoid        ? 1 / (1 + Exp(-logits[e]))
                  : router.scoring == Scoring::kSqrtSoftplus ? SqrtSoftplus(logits[e])
                                                             : Exp(logits[e] - largest);
      sum += scores[e];
    });
    sum = each_by_itself ? 1 : WarpSum(sum);
    const float* const bias = router.data;
    ForOwn(router.experts, [&](int e) {
      scores[e] /= sum;
      const float plain = bias == nullptr || router.logits_bias ? logits[e] : scores[e];
      keys[e] = NumberOrLowest(bias == nullptr ? plain : plain + bias[e]);
    });
    SyncWarp(AllLanes());
    return !undefined && has_number;
  }

  // Removes the experts of groups that are not among the best.
  PAGEMILL_DEVICE void ChooseGroups() const {
    const int size = router.experts / router.groups;
    ForOwn(router.groups, [&](int group) {
      float best = -INFINITY, second = -INFINITY;
      for (int e = group * size; e < (group + 1) * size; ++e) {
        const float key = router.data == nullptr ? NumberOrLowest(scores[e]) : keys[e];
        second = key > best ? best : fmaxf(second, key);
        best = fmaxf(best, key);
      }
      group_keys[group] = router.group_top == 1 ? best : best + second;
    });
    SyncWarp(AllLanes());
    ForOwn(router.experts, [&](int e) {
      const Candidate own = {group_keys[e / size], static_cast<uint32_t>(e / size)};
      int better = 0;
      for (int group = 0; group < router.groups; ++group) {
        better += Candidate{group_keys[group], static_cast<uint32_t>(group)}.Precedes(own);
      }
      if (better >= router.group_choices) keys[e] = NAN;
    });
  }

  // The best of the lane's experts.
  PAGEMILL_DEVICE Candidate BestOwn() const {
    Candidate best;
    ForOwn(router.experts, [&](int e) {
      const Candidate own = {keys[e], static_cast<uint32_t>(e)};
      if (own.Precedes(best)) best = own;  // not if its key is NaN
    });
    return best;
  }

  // The score of a choice by SparseMixer.
  PAGEMILL_DEVICE float Mix(float choice) const {
    float sum = 0;
    ForOwn(router.experts, [&](int e) {
      const bool far = choice - logits[e] > router.tolerance * fmaxf(fabsf(logits[e]), choice);
      if (!std::isnan(keys[e]) && !far) sum += Exp(logits[e] - choice);
    });
    sum = WarpSum(sum);
    return std::isfinite(choice) ? 1 / sum : NAN;
  }

  // `listed` are the experts of the token by a table, or null.
  PAGEMILL_DEVICE void Route(const float* listed, int32_t* to_ids, float* weights) const {
    bool defined = Score();
    if (router.groups > 1) ChooseGroups();
    float sum = 1e-20f;
    Candidate own = BestOwn();
    for (int j = 0; j < router.choices; ++j) {
      int expert = listed == nullptr ? static_cast<int>(WarpBest(own).index) : 0;
      if (listed != nullptr) {
        const bool exists = listed[j] > -1 && listed[j] < static_cast<float>(router.experts);
        defined &= exists;
        expert = exists ? static_cast<int>(listed[j]) : 0;
      }
      const float score = router.scoring == Scoring::kSparseMixer ? Mix(logits[expert])
                                                                  : scores[expert];
      sum += score;
      if (listed == nullptr && expert % WarpLanes() == Lane()) {
        keys[expert] = NAN;
        own = BestOwn();
      }
      if (j % WarpLanes() != Lane()) continue;
      ids[j] = expert;
      chosen[j] = score;
    }
    ForOwn(router.choices, [&](int j) {  // those that the lane has stored
      const float factor =
          router.factors == nullptr ? router.scale : router.scale * router.factors[ids[j]];
      to_ids[j] = ids[j] - router.first;
      weights[j] = defined ? chosen[j] / (router.renormalize ? sum : 1) * factor : NAN;
    });
  }
};

PAGEMILL_KERNEL RouteTokens(Rows<const float> logits, Rows<int32_t> ids, Rows<float> weights,
                            int64_t tokens, Router router) {
  LetNextBegin();
  AwaitInputs();
  const int64_t token = BlockIndex().x * (kThreads / WarpLanes()) + Warp();
  if (token >= tokens) return;
  float* const scores = DynamicShared<float>() + Warp() * router.SharedWords();
  float* const keys = scores + router.experts;
  float* const group_keys = keys + router.experts;
  float* const chosen = group_keys + router.groups;
  const TokenRouter of_token = {router,     logits[token], scores, keys,
                                group_keys, chosen,
                                reinterpret_cast<int32_t*>(chosen + router.choices)};
  const float* const listed =
      router.token_ids == nullptr ? nullptr : router.table[router.token_ids[token]];
  of_token.Route(listed, ids[token], weights[token]);
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && call.inputs[0].shape[1] <= kMaxExperts;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::moe_route::Args args = ops::moe_route::ToArgs(call);
  const Router router = {args.bias,
                         args.factors,
                         static_cast<int>(args.experts),
                         static_cast<int>(args.choices),
                         args.scoring,
                         args.tolerance,
                         args.logits_bias,
                         args.renormalize,
                         args.scale,
                         static_cast<int>(args.groups),
                         static_cast<int>(args.group_choices),
                         static_cast<int>(args.group_top),
                         args.first,
                         args.has_table() ? args.token_ids.Data<const int32_t>() : nullptr,
                         args.has_table() ? RowsOf<const float>(args.table) : Rows<const float>{}};
  const int64_t tokens = args.logits.shape[0];
  // Enough blocks for warps of 64 lanes; with 32 lanes, half of them do nothing.
  Launch(*context.stream,
         {.blocks = {DivideUp(tokens, kThreads / 64)},
          .threads = {kThreads},
          .shared_bytes = kTokens * router.SharedWords() * int64_t{sizeof(float)},
          .early = true},
         RouteTokens, RowsOf<const float>(args.logits), RowsOf<int32_t>(args.ids),
         RowsOf<float>(args.weights), tokens, router);
}

constexpr ops::Kernel kKernels[] = {{"moe_route", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> MoeRouteKernels() { return kKernels; }

}  // namespace pagemill::gpu
