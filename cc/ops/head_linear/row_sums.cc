// The bodies of a RowSumKernel. Each output is one chain of multiply-adds in the order of k,
// however rows and columns are blocked.
#include "cc/ops/head_linear/row_sums.h"

#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

constexpr int kColumnBlock = 4;  // vectors
constexpr int kRowBlock = Vec::kRegisters >= 32 ? 4 : 2;

// Computes kRows rows from `row` on, kColumns vectors from `column` on. `load` and `store` move one
// vector.
template <int kRows, int kColumns, typename Element, typename Load, typename Store>
inline void SumBlock(const RowSums& s, int64_t row, int64_t column, const Load& load,
                     const Store& store) {
  Vec::F sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) sums[r][c] = Vec::Zero();
  }
  const float* const x = s.x + row * s.x_stride;
  const Element* const weights = static_cast<const Element*>(s.weights) + column;
  for (int64_t k = 0; k < s.k; ++k) {
    Vec::F w[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      w[c] = load(weights + k * s.weight_stride + c * Vec::kLanes);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec::F v = Vec::Set(x[r * s.x_stride + k]);
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Vec::Fma(v, w[c], sums[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* const y = s.y + (row + r) * s.y_stride + column;
    for (int c = 0; c < kColumns; ++c) store(y + c * Vec::kLanes, sums[r][c]);
  }
}

template <int kColumns, typename Element, typename Load, typename Store>
inline void SumColumns(const RowSums& s, int64_t column, const Load& load, const Store& store) {
  int64_t row = 0;
  for (; row + kRowBlock <= s.n; row += kRowBlock) {
    SumBlock<kRowBlock, kColumns, Element>(s, row, column, load, store);
  }
  for (; row < s.n; ++row) SumBlock<1, kColumns, Element>(s, row, column, load, store);
}

template <typename Element>
void SumRows(const RowSums& s) {
  const auto load = [](const Element* p) { return Vec::Load(p); };
  const auto store = [](float* p, Vec::F v) { Vec::Store(p, v); };
  int64_t column = 0;
  for (; column + kColumnBlock * Vec::kLanes <= s.columns; column += kColumnBlock * Vec::kLanes) {
    SumColumns<kColumnBlock, Element>(s, column, load, store);
  }
  for (; column + Vec::kLanes <= s.columns; column += Vec::kLanes) {
    SumColumns<1, Element>(s, column, load, store);
  }
  const int rest = static_cast<int>(s.columns - column);
  if (rest == 0) return;
  SumColumns<1, Element>(
      s, column, [rest](const Element* p) { return Vec::LoadN(p, rest); },
      [rest](float* p, Vec::F v) { Vec::StoreN(p, v, rest); });
}

[[maybe_unused]] constexpr RowSumKernel kKernel = {.f32 = SumRows<float>,
                                                   .bf16 = SumRows<uint16_t>};

}  // namespace

const RowSumKernel PAGEMILL_VEC_NAME(kRowSums) = kKernel;

}  // namespace pagemill::ops
