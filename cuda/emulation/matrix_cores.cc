#include "cuda/gpu_matrix_cores.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "cc/tensor/float8.h"

namespace pagemill::gpu::emulation {
namespace {

constexpr size_t kSize = 16;  // rows of A and columns of B
constexpr size_t kElements = 8;  // of a lane

struct Factors {
  std::array<uint32_t, 4> a, b;
};

// Element i of a lane, whose `registers` have all of them.
float ElementOf(const std::array<uint32_t, 4>& words, size_t registers, size_t i) {
  if (registers == 4) {
    return std::bit_cast<float>(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
  }
  return F8E4M3ToFloat(static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)))) / 2;
}

}  // namespace

void MultiplyOnMatrixCores(std::span<const uint32_t> a, std::span<const uint32_t> b,
                           std::span<float> sums, const Location& where) {
  Block& block = CurrentBlock();
  const auto lanes = static_cast<size_t>(block.options().warp_lanes);
  const bool is_of_amd = block.options().is_of_amd || lanes == 64;
  if (!is_of_amd || lanes * sums.size() != kSize * kSize) {
    block.Fail(sums.size() == 4 ? "these products are for AMD's warps of 64 lanes"
                                : "these products are for AMD's warps of 32 lanes",
               where);
  }
  Factors own = {};
  std::ranges::copy(a, own.a.begin());
  std::ranges::copy(b, own.b.begin());
  using Tile = std::array<std::array<float, kSize>, kSize>;
  const Tile& tile = ComputeOnce<Tile>(own, where, [&](const Exchanged& warp, Tile& c) {
    std::array<std::array<float, kElements * 4>, kSize> left, right;  // rows of A, columns of B
    for (size_t lane = 0; lane < lanes; ++lane) {
      const auto of_lane = warp.By<Factors>(static_cast<int>(lane));
      for (size_t i = 0; i < kElements; ++i) {
        const size_t k = lane / kSize * kElements + i;
        left[lane % kSize][k] = ElementOf(of_lane.a, a.size(), i);
        right[lane % kSize][k] = ElementOf(of_lane.b, b.size(), i);
      }
    }
    for (size_t row = 0; row < kSize; ++row) {
      for (size_t column = 0; column < kSize; ++column) {
        float sum = 0;
        for (size_t k = 0; k < kElements * lanes / kSize; ++k) {
          sum += left[row][k] * right[column][k];
        }
        c[row][column] = sum;
      }
    }
  });
  const auto column = static_cast<size_t>(block.lane()) % kSize;
  for (size_t i = 0; i < sums.size(); ++i) {
    const int row = lanes == 64 ? MatrixCores<64>::RowOfSum(static_cast<int>(i))
                                : MatrixCores<32>::RowOfSum(static_cast<int>(i));
    sums[i] += tile[static_cast<size_t>(row)][column];
  }
}

}  // namespace pagemill::gpu::emulation
