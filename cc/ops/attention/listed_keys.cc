#include "cc/ops/attention/listed_keys.h"

#include <algorithm>

#include "cc/ops/attention/attention.h"
#include "cc/ops/batch_view.h"

namespace pagemill::ops {
namespace {

// Attributes that give each row a range of its own; 0 if left out.
struct Ranges {
  explicit Ranges(const OpCall& call)
      : grid_window(Attribute(call, "grid_window")),
        chunk(Attribute(call, "chunked") == 0 ? 0 : Attribute(call, "window")),
        prefix(Attribute(call, "prefix")),
        causal(call.attributes->GetInt("causal", 1) != 0) {}
  bool AreListed() const { return grid_window > 0 || chunk > 0 || prefix > 0; }

  // Those of row `row` of a request of `rows`.
  RowKeyRange KeysOf(int32_t row, int32_t rows) const {
    const int32_t first = chunk == 0 ? 0 : row - row % chunk;
    if (causal) return {first, std::max(row + 1, std::min(prefix, rows))};
    return {first, chunk == 0 || chunk > rows - first ? rows : first + chunk};
  }

  static int32_t Attribute(const OpCall& call, std::string_view name) {
    return static_cast<int32_t>(call.attributes->GetInt(name, 0));
  }

  int32_t grid_window, chunk, prefix;
  bool causal;
};

// True if both tokens have the same time and lie in one window of `side` rows and columns.
bool InOneWindow(const int32_t* positions, int32_t a, int32_t b, int32_t side) {
  const int32_t* const of_a = positions + int64_t{a} * kGridDims;
  const int32_t* const of_b = positions + int64_t{b} * kGridDims;
  return of_a[0] == of_b[0] && of_a[1] / side == of_b[1] / side && of_a[2] / side == of_b[2] / side;
}

// Lists windows of the tokens [start, last) of a request.
void ListWindows(const int32_t* positions, int32_t side, int32_t start, int32_t last,
                 RowKeyRange* keys) {
  for (int32_t first = start; first < last;) {
    int32_t end = first + 1;
    while (end < last && InOneWindow(positions, first, end, side)) ++end;
    std::fill(keys + first, keys + end, RowKeyRange{first - start, end - start});
    first = end;
  }
}

}  // namespace

int64_t ListedKeysBytes(const OpCall& call) {
  if (!Ranges(call).AreListed()) return 0;
  return call.inputs[0].shape[0] * static_cast<int64_t>(sizeof(RowKeyRange));
}

void ListKeys(const OpCall& call, std::span<std::byte> plan) {
  const Ranges ranges(call);
  if (!ranges.AreListed()) return;
  const BatchView& batch = *call.batch;
  const int32_t of_token = RowsOfToken(call);
  RowKeyRange* const keys = reinterpret_cast<RowKeyRange*>(plan.data());
  for (int32_t r = 0; r < batch.num_requests; ++r) {
    const int32_t start = batch.query_start[r] * of_token;
    const int32_t last = batch.query_start[r + 1] * of_token;
    if (ranges.grid_window > 0) {
      ListWindows(batch.grid_positions, ranges.grid_window, start, last, keys);
      continue;
    }
    for (int32_t i = start; i < last; ++i) keys[i] = ranges.KeysOf(i - start, last - start);
  }
}

const RowKeyRange* ListedKeys(const OpCall& call, const std::byte* plan) {
  return Ranges(call).AreListed() ? reinterpret_cast<const RowKeyRange*>(plan) : nullptr;
}

constinit const BatchPlan kListedKeysPlan = {.bytes = ListedKeysBytes, .make = ListKeys};

}  // namespace pagemill::ops
