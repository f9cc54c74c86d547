// File: cuda/ops/paged_attention/attention_rows.h
// What tiles of rows read and write, for kernels of tensor cores (attend_item.h) and of matrix
// cores (attend_matrix_item.h): queries and results, states of splits, and the rows of a request.
//
//   const RequestRows rows(call.params, call.batch, item.request, kv_head);
//   const TileRow row = rows.Row(item.first_row + 3);
//   if (row.exists) call.y.Store(row.token, row.head * head_dim + d, value);
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_ROWS_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_ROWS_H_

#include <cstdint>

#include "cuda/gpu_batch.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/activations.h"
#include "cuda/ops/paged_attention/attention_plan.h"
#include "cuda/ops/paged_attention/attention_scores.h"

namespace pagemill::gpu {

// States of splits: of kWarpRows rows, each its values [head_dim], `most` and `sum`.
struct SplitStates {
  float* data;
  int64_t kv_heads, head_dim;

  PAGEMILL_DEVICE float* Row(int64_t state, int64_t kv_head, int row) const {
    return data + ((state * kv_heads + kv_head) * kWarpRows + row) * (head_dim + 2);
  }
};

struct AttentionCall {
  AttentionParams params;
  StepTokens batch;
  Activations q, y;
};

// A row of a tile: one head of one query of the request.
struct TileRow {
  int token, head, position;
  int low, high;  // of the keys that it sees; none if it does not exist
  float growth;
  bool exists;
};

// The rows of a request that read a KV head, from its first token on.
struct RequestRows {
  const AttentionParams& p;
  int first_token, tokens, seq_len, kv_head, group;

  PAGEMILL_DEVICE RequestRows(const AttentionParams& params, const StepTokens& batch,
                              int32_t request, int kv_head)
      : p(params),
        first_token(batch.query_start[request]),
        tokens(batch.query_start[request + 1] - first_token),
        seq_len(batch.seq_lens[request]),
        kv_head(kv_head),
        group(static_cast<int>(p.q_heads) / static_cast<int>(p.kv_heads)) {}

  PAGEMILL_DEVICE int NumRows() const { return tokens * group; }
  PAGEMILL_DEVICE TileRow Row(int row) const {
    if (row >= NumRows()) return {};
    const int token = row / group, position = seq_len - tokens + token;
    const KeyRange keys =
        VisibleKeys(p, {.token = first_token + token, .position = position, .seq_len = seq_len});
    return {.token = first_token + token,
            .head = kv_head * group + row % group,
            .position = position,
            .low = static_cast<int>(keys.low),
            .high = static_cast<int>(keys.high),
            .growth = Growth(p, position),
            .exists = true};
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_ROWS_H_
