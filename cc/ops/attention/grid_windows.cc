#include "cc/ops/attention/grid_windows.h"

#include <algorithm>

#include "cc/ops/batch_view.h"

namespace pagemill::ops {
namespace {

int32_t SideOf(const OpCall& call) {
  return static_cast<int32_t>(call.attributes->GetInt("grid_window", 0));
}

// True if both tokens have the same time and lie in one window of `side` rows and columns.
bool InOneWindow(const int32_t* positions, int32_t a, int32_t b, int32_t side) {
  const int32_t* const of_a = positions + int64_t{a} * kGridDims;
  const int32_t* const of_b = positions + int64_t{b} * kGridDims;
  return of_a[0] == of_b[0] && of_a[1] / side == of_b[1] / side && of_a[2] / side == of_b[2] / side;
}

}  // namespace

int64_t GridWindowsBytes(const OpCall& call) {
  if (SideOf(call) == 0) return 0;
  return call.inputs[0].shape[0] * static_cast<int64_t>(sizeof(TokenKeys));
}

void ListGridWindows(const OpCall& call, std::span<std::byte> plan) {
  const int32_t side = SideOf(call);
  if (side == 0) return;
  const BatchView& batch = *call.batch;
  TokenKeys* const keys = reinterpret_cast<TokenKeys*>(plan.data());
  for (int32_t r = 0; r < batch.num_requests; ++r) {
    const int32_t start = batch.query_start[r], last = batch.query_start[r + 1];
    for (int32_t first = start; first < last;) {
      int32_t end = first + 1;
      while (end < last && InOneWindow(batch.grid_positions, first, end, side)) ++end;
      std::fill(keys + first, keys + end, TokenKeys{first - start, end - start});
      first = end;
    }
  }
}

const TokenKeys* GridWindows(const OpCall& call, const std::byte* plan) {
  return SideOf(call) == 0 ? nullptr : reinterpret_cast<const TokenKeys*>(plan);
}

constinit const BatchPlan kGridWindowsPlan = {.bytes = GridWindowsBytes, .make = ListGridWindows};

}  // namespace pagemill::ops
