// File: cc/ops/attention/listed_keys.h
// Which keys a row sees if the attributes of `attention` give each a range of its own: with
// grid_window those of the run of consecutive tokens around it that lie in one window of the grid,
// with chunked those of its chunk, with prefix also those of the prefix. The list of all rows is
// made on the host once per step, for every kernel of the op.
//
//   const int64_t bytes = ListedKeysBytes(call);        // 0 without these attributes
//   ListKeys(call, plan);
//   const RowKeyRange keys = ListedKeys(call, plan)[row];
#ifndef PAGEMILL_CC_OPS_ATTENTION_LISTED_KEYS_H_
#define PAGEMILL_CC_OPS_ATTENTION_LISTED_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/ops/op.h"

namespace pagemill::ops {

// Keys [first, end), counted from the request's first row on.
struct RowKeyRange {
  int32_t first = 0;
  int32_t end = 0;
};

// For a call of these (largest) shapes.
int64_t ListedKeysBytes(const OpCall& call);
// Reads the arrays of the batch, and no operand. Neither end of a row's keys is before that of an
// earlier row of the request.
void ListKeys(const OpCall& call, std::span<std::byte> plan);
// The list at `plan`, [N]; null without these attributes.
const RowKeyRange* ListedKeys(const OpCall& call, const std::byte* plan);

extern const BatchPlan kListedKeysPlan;  // the list alone

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ATTENTION_LISTED_KEYS_H_
