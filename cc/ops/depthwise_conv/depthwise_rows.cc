// The plan of `depthwise_conv`: which row each tap of each token reads.
#include <algorithm>
#include <array>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/ops/depthwise_conv/depthwise_conv.h"

namespace pagemill::ops {
namespace {

constexpr int32_t kNoRow = -1;

// Rows of the tokens [begin, end) of a request, for taps from `before` tokens in front of each.
void ListAlongRequest(int64_t begin, int64_t end, int64_t before, int64_t taps, int32_t* rows) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t row = t + k - before;
      rows[t * taps + k] = row >= begin && row < end ? static_cast<int32_t>(row) : kNoRow;
    }
  }
}

// A token of a request by its place in the grid.
struct Cell {
  std::array<int32_t, kGridDims> place;  // time, row and column
  int32_t token;
};

// Rows of the tokens [begin, end) of a request, for the `side` x `side` cells around each.
void ListOnGrid(const int32_t* positions, int32_t begin, int32_t end, int64_t side, int32_t* rows) {
  std::vector<Cell> cells;
  cells.reserve(static_cast<size_t>(end - begin));
  for (int32_t t = begin; t < end; ++t) {
    const int32_t* const place = positions + int64_t{t} * kGridDims;
    cells.push_back({{place[0], place[1], place[2]}, t});
  }
  const auto ascends = [](const Cell& a, const Cell& b) {
    return a.place != b.place ? a.place < b.place : a.token < b.token;
  };
  std::sort(cells.begin(), cells.end(), ascends);
  // The last token of each place: padding has all of its tokens in one.
  std::vector<Cell> lasts;
  for (const Cell& cell : cells) {
    if (!lasts.empty() && lasts.back().place == cell.place) lasts.pop_back();
    lasts.push_back(cell);
  }
  const int64_t half = side / 2;
  for (const Cell& cell : cells) {
    const auto [time, row, column] = cell.place;
    int32_t* const listed = rows + int64_t{cell.token} * side * side;
    std::fill_n(listed, side * side, kNoRow);
    for (int64_t i = 0; i < side; ++i) {
      // Cells of one row of the grid follow each other.
      const int64_t of_row = row + i - half, first = column - half;
      auto found = std::partition_point(lasts.begin(), lasts.end(), [&](const Cell& other) {
        const auto& [t, r, c] = other.place;
        return t != time ? t < time : r != of_row ? r < of_row : c < first;
      });
      for (; found != lasts.end() && found->place[0] == time && found->place[1] == of_row &&
             found->place[2] < first + side;
           ++found) {
        listed[i * side + found->place[2] - first] = found->token;
      }
    }
  }
}

int64_t PlanBytes(const OpCall& call) {
  if (call.inputs.size() > kDepthwiseIndex) return 0;
  const int64_t taps = call.inputs[1].RowElements();
  return call.inputs[0].shape[0] * taps * static_cast<int64_t>(sizeof(int32_t));
}

void MakePlan(const OpCall& call, std::span<std::byte> plan) {
  if (call.inputs.size() > kDepthwiseIndex) return;
  const BatchView& batch = *call.batch;
  const int64_t taps = call.inputs[1].RowElements();
  const bool on_grid = call.attributes->GetInt("grid", 0) != 0;
  const int64_t before = call.attributes->GetInt("before", 0);
  int64_t side = 1;
  while (side * side < taps) ++side;
  int32_t* const rows = reinterpret_cast<int32_t*>(plan.data());
  for (int32_t r = 0; r < batch.num_requests; ++r) {
    const int32_t begin = batch.query_start[r], end = batch.query_start[r + 1];
    if (on_grid) {
      ListOnGrid(batch.grid_positions, begin, end, side, rows);
    } else {
      ListAlongRequest(begin, end, before, taps, rows);
    }
  }
}

}  // namespace

constinit const BatchPlan kDepthwiseRowsPlan = {.bytes = PlanBytes, .make = MakePlan};

}  // namespace pagemill::ops
