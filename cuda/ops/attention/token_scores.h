// File: cuda/ops/attention/token_scores.h
// Which rows of its request a row sees, and what becomes of the dot product of both (the
// contract is cc/ops/attention/attention.h), for every kernel of the op.
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_TOKEN_SCORES_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_TOKEN_SCORES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cc/ops/attention/attention.h"
#include "cc/ops/attention/listed_keys.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Keys [low, high), counted from the request's first row on.
struct SeenKeys {
  int low, high;
};

// The requests of a step, whose tokens have `of_token` rows each.
struct RequestRows {
  const int32_t* query_start;
  int32_t num_requests, of_token;

  PAGEMILL_DEVICE int Start(int32_t request) const { return query_start[request] * of_token; }
  PAGEMILL_DEVICE int End() const { return Start(num_requests); }
  // num_requests if the row belongs to none.
  PAGEMILL_DEVICE int32_t RequestOfRow(int row) const {
    return RequestOf(query_start, num_requests, row / of_token);
  }
};

inline RequestRows RequestRowsOf(const ops::OpCall& call) {
  return {.query_start = call.batch->query_start,
          .num_requests = call.batch->num_requests,
          .of_token = ops::RowsOfToken(call)};
}

// ops::BiasTable, for kernels.
struct Biases {
  const float* data;  // null: none
  int reach;
  int64_t row_stride;

  // The bias of a head of a row of the step.
  PAGEMILL_DEVICE float At(int64_t row, int head, int distance) const {
    const int within = distance < -reach ? -reach : distance > reach ? reach : distance;
    return data[row * row_stride + int64_t{head} * (2 * reach + 1) + reach + within];
  }
};

// What the scores of a call have in common.
struct TokenScores {
  Biases biases, column_biases, key_biases;
  int grid_columns;       // 0: no biases of columns
  const float* sinks;     // null: none
  float scale;
  SoftCap cap;
  bool causal;
  int window;                      // 0: none
  const ops::RowKeyRange* listed;  // of the step's rows, or null: by the attributes

  // By a row of a request of `rows` from `start` on. Neither end is before that of an earlier row.
  PAGEMILL_DEVICE SeenKeys SeenBy(int start, int row, int rows) const {
    if (listed != nullptr) return {listed[start + row].first, listed[start + row].end};
    SeenKeys seen = {0, causal ? row + 1 : rows};
    if (window == 0) return seen;
    if (row >= window) seen.low = row + 1 - window;
    if (window < seen.high - row) seen.high = row + window;
    return seen;
  }
  // What becomes of the dot product of row `row` of the request and its key `key`.
  PAGEMILL_DEVICE float Score(float dot, int head, int start, int row, int key) const {
    const float score = Biased(dot * scale, head, start, row, key);
    return cap.most > 0 ? cap.Of(score) : score;
  }

 private:
  PAGEMILL_DEVICE float Biased(float score, int head, int start, int row, int key) const {
    if (key_biases.data != nullptr) score += key_biases.At(start + key, head, key - row);
    if (biases.data == nullptr) return score;
    const int query = start + row;
    if (grid_columns == 0) return score + biases.At(query, head, key - row);
    const int rows = key / grid_columns - row / grid_columns;
    const int columns = key % grid_columns - row % grid_columns;
    return score + biases.At(query, head, rows) + column_biases.At(query, head, columns);
  }
};

// As large as a window may be.
inline constexpr int64_t kNoLimit = std::numeric_limits<int>::max();

inline Biases BiasesOf(const ops::BiasTable& table) {
  return {.data = table.data, .reach = table.reach, .row_stride = table.row_stride};
}

// `plan`: what ops::kListedKeysPlan has made, on the device.
inline TokenScores ScoresOf(const ops::OpCall& call, const std::byte* plan) {
  const ops::DistanceBiases biases = ops::AttentionBiases(call);
  return {.biases = BiasesOf(biases.rows),
          .column_biases = BiasesOf(biases.columns),
          .key_biases = BiasesOf(biases.keys),
          .grid_columns = biases.grid_columns,
          .sinks = ops::AttentionSinks(call),
          .scale = static_cast<float>(call.attributes->Get("scale", 1)),
          .cap = SoftCapOf(static_cast<float>(call.attributes->Get("soft_cap", 0))),
          .causal = call.attributes->GetInt("causal", 1) != 0,
          .window = static_cast<int>(std::min(call.attributes->GetInt("window", 0), kNoLimit)),
          .listed = ops::ListedKeys(call, plan)};
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_TOKEN_SCORES_H_
