// File: cuda/ops/linear/rounded_groups.h
// Rows of bf16 activations are rounded to e4m3, kF8Columns columns with a scale of their own
// (rounding_scale.h).
//
//   LaunchRoundGroups(x, rows, columns, rounded, scales, stream);  // to scales.At(row, group)
//
//   const auto layout = RoundedGroups::Of(x);                        // in memory of layout.bytes()
//   layout.Round(x, memory, stream);
#ifndef PAGEMILL_CUDA_OPS_LINEAR_ROUNDED_GROUPS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_ROUNDED_GROUPS_H_

#include <cstddef>
#include <cstdint>

#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/rounding_scale.h"

namespace pagemill::gpu {

inline constexpr int64_t kF8Columns = 128;
inline constexpr uint32_t kRoundingThreads = 256;

// Block (row, columns): a thread for eight. Some lanes of a warp have those of a scale.
template <typename Scales>
PAGEMILL_KERNEL RoundGroups(Rows<const BFloat16> x, int64_t columns, Rows<uint8_t> rounded,
                            Scales scales) {
  LetNextBegin();
  AwaitInputs();
  constexpr int kLanes = kF8Columns / EightColumns::kCount;
  const int64_t row = BlockIndex().x;
  const int64_t k = (int64_t{BlockIndex().y} * kRoundingThreads + ThreadIndex().x) *
                    EightColumns::kCount;
  const bool is_inside = k < columns;
  const auto own = is_inside ? EightColumns::Load(x[row] + k) : EightColumns{};
  const float largest = WarpReduce(own.Largest(), LargerMagnitude(), kLanes);
  const auto scale = RoundingScale::Of(largest, kLargestF8E4M3);
  if (!is_inside) return;
  if (Lane() % kLanes == 0) scales.At(row, k / kF8Columns) = scale.scale;
  own.StoreRounded(scale.inverse, rounded[row] + k);
}

// Of `rows` rows, which HasAlignedRows() and have a multiple of eight columns.
template <typename Scales>
void LaunchRoundGroups(Rows<const BFloat16> x, int64_t rows, int64_t columns,
                       Rows<uint8_t> rounded, const Scales& scales, device::Stream& stream) {
  const uint32_t parts = DivideUp(columns, kRoundingThreads * EightColumns::kCount);
  Launch(stream,
         {.blocks = {static_cast<uint32_t>(rows), parts},
          .threads = {kRoundingThreads},
          .early = true},
         RoundGroups<Scales>, x, columns, rounded, scales);
}

struct ScalesOfRows {
  Rows<float> rows;
  PAGEMILL_DEVICE float& At(int64_t row, int64_t group) const { return rows[row][group]; }
};

// Rows of x as they are rounded, and behind them their scales.
struct RoundedGroups {
  int64_t rows, columns, groups;

  // A row has whole groups.
  static RoundedGroups Of(const TensorView& x) {
    return {x.shape[0], x.RowElements(), x.RowElements() / kF8Columns};
  }
  int64_t bytes() const { return rows * (columns + groups * int64_t{sizeof(float)}); }

  Rows<uint8_t> Values(std::byte* memory) const {
    return {reinterpret_cast<uint8_t*>(memory), columns};
  }
  Rows<float> Scales(std::byte* memory) const {
    return {reinterpret_cast<float*>(memory + rows * columns), groups};
  }
  // x HasAlignedRows().
  void Round(const TensorView& x, std::byte* memory, device::Stream& stream) const {
    LaunchRoundGroups(RowsOf<const BFloat16>(x), rows, columns, Values(memory),
                      ScalesOfRows{Scales(memory)}, stream);
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_ROUNDED_GROUPS_H_
