#include "cc/ops/apply_adapter/adapter_rows.h"

#include <algorithm>
#include <cstdint>

#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

constexpr int kChains = 2;  // of a sum over k, so that an addition need not wait for the one before
constexpr int kColumns = 2;  // registers of z at a time

template <typename T, int kRows>
void Down(const AdapterRows& rows) {
  const int64_t stride = PaddedAdapterRank(rows.adapter->rank);
  const Vec::F scale = Vec::Set(rows.adapter->scale);
  for (int64_t r = 0; r < stride; r += Vec::kLanes) {
    const T* a = static_cast<const T*>(rows.adapter->a) + r;
    Vec::F sums[kRows][kChains];
    for (auto& row : sums) {
      for (Vec::F& sum : row) sum = Vec::Zero();
    }
    int64_t k = 0;
    for (; k + kChains <= rows.in; k += kChains) {
      for (int c = 0; c < kChains; ++c) {
        const Vec::F column = Vec::Load(a + (k + c) * stride);
        for (int n = 0; n < kRows; ++n) {
          sums[n][c] = Vec::Fma(Vec::Set(rows.x[n][k + c]), column, sums[n][c]);
        }
      }
    }
    for (; k < rows.in; ++k) {
      const Vec::F column = Vec::Load(a + k * stride);
      for (int n = 0; n < kRows; ++n) {
        sums[n][0] = Vec::Fma(Vec::Set(rows.x[n][k]), column, sums[n][0]);
      }
    }
    for (int n = 0; n < kRows; ++n) {
      Vec::Store(rows.low[n] + r, Vec::Mul(scale, Vec::Add(sums[n][0], sums[n][1])));
    }
  }
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
