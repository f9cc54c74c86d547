#include "cc/ops/apply_adapter/adapter_rows.h"

#include <algorithm>
#include <cstdint>

#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

constexpr int kRanks = Vec::kRegisters >= 32 ? 4 : 2;  // rows of A at a time
constexpr int kColumns = 2;                            // registers of z at a time

// low[r, r + kCount) of all rows. Each is a sum of its own, so its bits do not depend on the others.
template <typename T, int kRows, int kCount>
void DownRanks(const AdapterRows& rows, int64_t r) {
  const T* a = static_cast<const T*>(rows.adapter->a) + r * rows.in;
  Vec::F sums[kRows][kCount];
  for (auto& row : sums) {
    for (Vec::F& sum : row) sum = Vec::Zero();
  }
  const auto add = [&](const auto& load) {
    Vec::F x[kRows];
    for (int n = 0; n < kRows; ++n) x[n] = load(rows.x[n]);
    for (int c = 0; c < kCount; ++c) {
      const Vec::F column = load(a + c * rows.in);
      for (int n = 0; n < kRows; ++n) sums[n][c] = Vec::Fma(x[n], column, sums[n][c]);
    }
  };
  int64_t k = 0;
  for (; k + Vec::kLanes <= rows.in; k += Vec::kLanes) {
    add([k](const auto* row) { return Vec::Load(row + k); });
  }
  if (k < rows.in) {
    const int count = static_cast<int>(rows.in - k);
    add([k, count](const auto* row) { return Vec::LoadN(row + k, count); });
  }
  for (int n = 0; n < kRows; ++n) {
    for (int c = 0; c < kCount; ++c) {
      rows.low[n][r + c] = rows.adapter->scale * Vec::Sum(sums[n][c]);
    }
  }
}

template <typename T, int kRows>
void Down(const AdapterRows& rows) {
  int64_t r = 0;
  for (; r + kRanks <= rows.adapter->rank; r += kRanks) DownRanks<T, kRows, kRanks>(rows, r);
  for (; r < rows.adapter->rank; ++r) DownRanks<T, kRows, 1>(rows, r);
}

// The start of a sum: gain * y + offset. Fused explicitly, so that no compiler chooses.
Vec::F Base(const AdapterMatrices& m, Vec::F y, int64_t column, int count) {
  if (m.gain == nullptr && m.offset == nullptr) return y;
  const Vec::F gain = m.gain == nullptr ? Vec::Set(1) : Vec::LoadN(m.gain + column, count);
  const Vec::F offset = m.offset == nullptr ? Vec::Zero() : Vec::LoadN(m.offset + column, count);
  return Vec::Fma(gain, y, offset);
}

template <typename T, int kRows>
void Up(const AdapterRows& rows) {
  const AdapterMatrices& m = *rows.adapter;
  const T* b = static_cast<const T*>(m.b);
  const int64_t end = rows.first_column + rows.columns;
  int64_t column = rows.first_column;
  for (; column + kColumns * Vec::kLanes <= end; column += kColumns * Vec::kLanes) {
    Vec::F sums[kRows][kColumns];
    for (int n = 0; n < kRows; ++n) {
      for (int c = 0; c < kColumns; ++c) {
        const int64_t at = column + c * Vec::kLanes;
        sums[n][c] = Base(m, Vec::Load(rows.y[n] + at), at, Vec::kLanes);
      }
    }
    for (int32_t r = 0; r < m.rank; ++r) {
      Vec::F row[kColumns];
      for (int c = 0; c < kColumns; ++c) {
        row[c] = Vec::Load(b + r * rows.out + column + c * Vec::kLanes);
      }
      for (int n = 0; n < kRows; ++n) {
        const Vec::F low = Vec::Set(rows.low[n][r]);
        for (int c = 0; c < kColumns; ++c) sums[n][c] = Vec::Fma(low, row[c], sums[n][c]);
      }
    }
    for (int n = 0; n < kRows; ++n) {
      for (int c = 0; c < kColumns; ++c) {
        Vec::Store(rows.z[n] + column + c * Vec::kLanes, sums[n][c]);
      }
    }
  }
  for (; column < end; column += Vec::kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(Vec::kLanes, end - column));
    for (int n = 0; n < kRows; ++n) {
      Vec::F sum = Base(m, Vec::LoadN(rows.y[n] + column, count), column, count);
      for (int32_t r = 0; r < m.rank; ++r) {
        sum = Vec::Fma(Vec::Set(rows.low[n][r]), Vec::LoadN(b + r * rows.out + column, count), sum);
      }
      Vec::StoreN(rows.z[n] + column, sum, count);
    }
  }
}

template <typename T>
void DownOf(const AdapterRows& rows) {
  switch (rows.num_rows) {
    case 1:
      return Down<T, 1>(rows);
    case 2:
      return Down<T, 2>(rows);
    case 3:
      return Down<T, 3>(rows);
    default:
      return Down<T, kAdapterRows>(rows);
  }
}

template <typename T>
void UpOf(const AdapterRows& rows) {
  switch (rows.num_rows) {
    case 1:
      return Up<T, 1>(rows);
    case 2:
      return Up<T, 2>(rows);
    case 3:
      return Up<T, 3>(rows);
    default:
      return Up<T, kAdapterRows>(rows);
  }
}

}  // namespace

void PAGEMILL_VEC_NAME(AdapterDown)(const AdapterRows& rows) {
  if (rows.adapter->dtype == DType::kBF16) return DownOf<uint16_t>(rows);
  DownOf<float>(rows);
}

void PAGEMILL_VEC_NAME(AdapterUp)(const AdapterRows& rows) {
  if (rows.adapter->dtype == DType::kBF16) return UpOf<uint16_t>(rows);
  UpOf<float>(rows);
}

}  // namespace pagemill::ops
