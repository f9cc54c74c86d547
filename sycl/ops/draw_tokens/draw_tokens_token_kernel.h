#ifndef PAGEMILL_SYCL_OPS_DRAW_TOKENS_DRAW_TOKENS_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_DRAW_TOKENS_DRAW_TOKENS_TOKEN_KERNEL_H_

#include "cc/ops/sample/philox.h"
#include "sycl/ops/draw_tokens/draw_tokens_params.h"
#include "sycl/ops/kernel.h"

// Weights are integers in units of 2^-40 of the largest: their sums are exact in every order, and
// no device needs doubles. A width below 2^23 cannot overflow them.
inline constexpr float kWeightUnits = 0x1p40f;

// Floats in the order of these numbers; 0 and -0 are equal.
inline uint32_t OrderOf(float x) {
  const uint32_t bits = sycl::bit_cast<uint32_t>(x == 0 ? 0.0f : x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// A row of logits and the limits of its draw.
struct DrawnRow {
  const float* x;
  int32_t width;
  float largest, temperature, min_p;
  uint32_t cut = 0;  // logits of a lower order are excluded

  float Weight(int32_t v) const { return sycl::exp((x[v] - largest) / temperature); }
  // Those of logits that are not excluded; otherwise 0.
  uint64_t Units(int32_t v) const {
    const float weight = Weight(v);
    if (!(weight > 0) || weight < min_p || OrderOf(x[v]) < cut) return 0;
    return static_cast<uint64_t>(weight * kWeightUnits);
  }
};

// The sum of `of(v)` over the row's columns, for all work-items of the group.
template <typename Of>
inline uint64_t SumOverRow(int32_t width, const Of& of) {
  uint64_t sum = 0;
  for (int32_t v = LocalId(); v < width; v += GroupSize()) sum += of(v);
  return sycl::reduce_over_group(Group(), sum, sycl::plus<uint64_t>());
}

// The highest order such that the sum of `of(v)` over logits of at least this order is `target` or
// more; 0 if no sum is.
template <typename Of>
inline uint32_t HighestOrder(const DrawnRow& row, uint64_t target, const Of& of) {
  uint32_t order = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t next = order | uint32_t{1} << bit;
    const auto from_next = [&](int32_t v) { return OrderOf(row.x[v]) >= next ? of(v) : 0; };
    if (SumOverRow(row.width, from_next) >= target) order = next;
  }
  return order;
}

// Equal logits at the cut of top-p: the first of them, by column, are kept.
inline uint64_t KeptTies(const DrawnRow& row, uint64_t target) {
  const auto units = [&](int32_t v) { return row.Units(v); };
  const auto above = [&](int32_t v) { return OrderOf(row.x[v]) > row.cut ? units(v) : 0; };
  const auto ties = [&](int32_t v) { return OrderOf(row.x[v]) == row.cut ? units(v) : 0; };
  const auto is_tie = [&](int32_t v) { return uint64_t{ties(v) != 0}; };
  const uint64_t count = SumOverRow(row.width, is_tie);
  if (count == 0) return 0;
  const uint64_t each = SumOverRow(row.width, ties) / count;
  const uint64_t missing = target - SumOverRow(row.width, above);
  return (missing + each - 1) / each;
}

// Each work-item adds the kept units of neighbouring columns; the one in whose range the drawn
// number falls finds the column.
inline void DrawColumn(const DrawnRow& row, uint64_t kept_ties, uint64_t random, int32_t* column) {
  const int32_t range = (row.width + GroupSize() - 1) / GroupSize();
  const int32_t begin = sycl::min(LocalId() * range, row.width);
  const int32_t end = sycl::min(begin + range, row.width);
  const auto is_tie = [&](int32_t v) { return OrderOf(row.x[v]) == row.cut; };
  uint64_t ties = 0;
  for (int32_t v = begin; v < end; ++v) ties += is_tie(v) && row.Units(v) != 0 ? 1 : 0;
  const uint64_t ties_before =
      sycl::exclusive_scan_over_group(Group(), ties, sycl::plus<uint64_t>());
  // Calls visit(v, units) for the kept columns of the range.
  const auto visit_kept = [&](const auto& visit) {
    uint64_t tie = ties_before;
    for (int32_t v = begin; v < end; ++v) {
      const uint64_t units = row.Units(v);
      if (units == 0 || (is_tie(v) && tie++ >= kept_ties)) continue;
      visit(v, units);
    }
  };
  uint64_t own = 0;
  visit_kept([&](int32_t, uint64_t units) { own += units; });
  const uint64_t before = sycl::exclusive_scan_over_group(Group(), own, sycl::plus<uint64_t>());
  const uint64_t total = sycl::reduce_over_group(Group(), own, sycl::plus<uint64_t>());
  const uint64_t drawn = sycl::mul_hi(random, total);  // random / 2^64 of the total
  if (drawn < before || drawn >= before + own) return;
  uint64_t sum = before;
  bool found = false;
  visit_kept([&](int32_t v, uint64_t units) {
    sum += units;
    if (found || sum <= drawn) return;
    *column = v;
    found = true;
  });
}

// A work-group for each row.
PAGEMILL_KERNEL void draw_tokens_kernel(DrawTokensParams p) {
  const int64_t l = GroupId();
  const DrawWords& draw = *p.draws.Row<const DrawWords>(l);
  const int32_t column = p.columns[l];
  sycl::group_barrier(Group());  // y may be `columns`
  if (column < 0 || !(draw.temperature > 0)) {
    if (LocalId() == 0) p.y[l] = column;
    return;
  }
  DrawnRow row{p.x.Row<const float>(l), p.width, p.values[l], draw.temperature, draw.min_p};
  if (draw.top_k > 0) {
    const auto is_kept = [&](int32_t v) {
      const float weight = row.Weight(v);
      return uint64_t{weight > 0 && weight >= row.min_p};
    };
    row.cut = HighestOrder(row, static_cast<uint64_t>(draw.top_k), is_kept);
  }
  uint64_t kept_ties = ~uint64_t{0};
  if (draw.top_p < 1) {
    const auto units = [&](int32_t v) { return row.Units(v); };
    const auto share = static_cast<uint64_t>(draw.top_p * 0x1p32f) << 32;  // of 2^64
    const uint64_t target =
        sycl::max(uint64_t{1}, sycl::mul_hi(share, SumOverRow(row.width, units)));
    row.cut = sycl::max(row.cut, HighestOrder(row, target, units));
    kept_ties = KeptTies(row, target);
  }
  const auto random = pagemill::ops::Philox4x32(
      {static_cast<uint32_t>(draw.position), static_cast<uint32_t>(draw.position < 0 ? -1 : 0), 0,
       0},
      {draw.seed_low, draw.seed_high});
  DrawColumn(row, kept_ties, (uint64_t{random[0]} << 32 | random[1]) >> 11 << 11, p.y + l);
}

#endif  // PAGEMILL_SYCL_OPS_DRAW_TOKENS_DRAW_TOKENS_TOKEN_KERNEL_H_
