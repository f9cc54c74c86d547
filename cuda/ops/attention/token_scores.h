// File: cuda/ops/attention/token_scores.h
// Which tokens of its request a token sees, and what becomes of the dot product of both (the
// contract is cc/ops/attention/attention.h), for every kernel of the op.
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_TOKEN_SCORES_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_TOKEN_SCORES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cc/ops/attention/attention.h"
#include "cc/ops/attention/grid_windows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Keys [low, high), counted from the request's first token on.
struct SeenKeys {
  int low, high;
};

// What the scores of a call have in common.
struct TokenScores {
  const float* biases;  // of the distances of a head from -reach to reach, or null
  int reach;
  float scale;
  bool causal;
  int window;                     // 0: none
  const ops::TokenKeys* windows;  // of the step's tokens, or null: those of a grid

  // By a token of a request of `tokens` from `start` on. Neither end is before that of an earlier
  // token.
  PAGEMILL_DEVICE SeenKeys SeenBy(int start, int token, int tokens) const {
    if (windows != nullptr) return {windows[start + token].first, windows[start + token].end};
    SeenKeys seen = {0, causal ? token + 1 : tokens};
    if (window == 0) return seen;
    if (token >= window) seen.low = token + 1 - window;
    if (window < seen.high - token) seen.high = token + window;
    return seen;
  }
  // `distance`: from the token to the key.
  PAGEMILL_DEVICE float Score(float dot, int head, int distance) const {
    if (biases == nullptr) return dot * scale;
    const int within = distance < -reach ? -reach : distance > reach ? reach : distance;
    return dot * scale + biases[int64_t{head} * (2 * reach + 1) + reach + within];
  }
};

// As large as a window may be.
inline constexpr int64_t kNoLimit = std::numeric_limits<int>::max();

// `plan`: what ops::kGridWindowsPlan has made, on the device.
inline TokenScores ScoresOf(const ops::OpCall& call, const std::byte* plan) {
  const bool has_biases = call.inputs.size() > ops::kAttentionBiases;
  return {
      .biases = has_biases ? call.inputs[ops::kAttentionBiases].Data<const float>() : nullptr,
      .reach = has_biases ? static_cast<int>(call.inputs[ops::kAttentionBiases].shape[1] / 2) : 0,
      .scale = static_cast<float>(call.attributes->Get("scale", 1)),
      .causal = call.attributes->GetInt("causal", 1) != 0,
      .window = static_cast<int>(std::min(call.attributes->GetInt("window", 0), kNoLimit)),
      .windows = ops::GridWindows(call, plan)};
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_TOKEN_SCORES_H_
