// File: sycl/ops/states/state_column.h
// A column of a matrix of state in the registers of a sub-group: its lanes have every kLanes-th
// row. Kernel text only.
//
//   StateColumn state(p.rows, /*stride=*/p.columns);
//   state.Load(source);                                  // zeros if null
//   float sum = 0;
//   state.ForEachRow([&](float& h, int32_t row) { sum += h * b[row]; });
//   sum = LaneSum(sum);
//
// Every lane of a sub-group has the same column.
#ifndef PAGEMILL_SYCL_OPS_STATES_STATE_COLUMN_H_
#define PAGEMILL_SYCL_OPS_STATES_STATE_COLUMN_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/states/state_sizes.h"

namespace pagemill::sycl {

inline float LaneSum(float value) {
  return ::sycl::reduce_over_group(SubGroup(), value, ::sycl::plus<float>());
}

// ln(1 + e^x), without overflow.
inline float Softplus(float x) {
  return ::sycl::fmax(x, 0.0f) + ::sycl::log1p(::sycl::exp(-::sycl::fabs(x)));
}

class StateColumn {
 public:
  // `stride`: elements from one row to the next.
  StateColumn(int32_t rows, int64_t stride) : rows_(rows), stride_(stride) {}

  void Load(const float* column) {
    ForEachRow([&](float& h, int32_t row) { h = column == nullptr ? 0 : column[row * stride_]; });
  }
  void Store(float* column) {
    ForEachRow([&](float& h, int32_t row) { column[row * stride_] = h; });
  }

  // Calls visit(element, row) for the lane's rows.
  template <typename Visit>
  void ForEachRow(const Visit& visit) {
#pragma nounroll  // for the time of compiling
    for (int32_t i = 0; i < kMaxStateRows / kLanes; ++i) {
      const int32_t row = i * kLanes + Lane();
      if (row < rows_) visit(elements_[i], row);
    }
  }
  // The element of one of the lane's rows.
  float At(int32_t row) const { return elements_[row / kLanes]; }

 private:
  const int32_t rows_;
  const int64_t stride_;
  float elements_[kMaxStateRows / kLanes];
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_STATES_STATE_COLUMN_H_
