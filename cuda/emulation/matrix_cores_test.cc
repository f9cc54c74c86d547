// Products of matrix cores, by the places of elements in lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/tensor/float8.h"
#include "cuda/emulation/launch.h"
#include "cuda/emulation/matrix_core_kernels.h"

namespace pagemill::gpu {
namespace {

using emulation::Launch;

float Value(BFloat16 x) { return ToFloat(x); }
float Value(uint8_t x) { return F8E4M3ToFloat(x); }

// Small whole numbers: their products and sums are exact.
template <typename T>
std::vector<T> Numbers(int count, int step) {
  std::vector<T> numbers;
  for (int i = 0; i < count; ++i) {
    const auto number = static_cast<float>(i * step % 15 - 7);
    if constexpr (sizeof(T) == 1) {
      numbers.push_back(FloatToF8E4M3(number));
    } else {
      numbers.push_back(FromFloat<BFloat16>(number));
    }
  }
  return numbers;
}

template <int kLanes, typename T>
void CheckProduct() {
  constexpr int kDepth = 64;
  const auto a = Numbers<T>(16 * kDepth, 7), b = Numbers<T>(16 * kDepth, 11);
  for (bool in_turn : {false, true}) {
    std::vector<float> c(16 * 16, NAN);
    const Status status =
        Launch({.block = {kLanes}, .warp_lanes = kLanes, .is_of_amd = true,
                .sums_in_turn = in_turn}, [&] {
          MultiplyOnMatrixCores<kLanes>(a.data(), b.data(), kDepth, c.data());
        });
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 16; ++column) {
        float sum = 0;
        for (size_t k = 0; k < kDepth; ++k) {
          sum += Value(a[row * kDepth + k]) * Value(b[column * kDepth + k]);
        }
        EXPECT_EQ(c[row * 16 + column], sum) << "row " << row << ", column " << column;
      }
    }
  }
}

TEST(MatrixCores, MultiplyBf16) {
  CheckProduct<32, BFloat16>();
  CheckProduct<64, BFloat16>();
}

TEST(MatrixCores, MultiplyFloat8) {
  CheckProduct<32, uint8_t>();
  CheckProduct<64, uint8_t>();
}

template <int kLanes>
Status MultiplyOnWarpsOf(int lanes, bool is_of_amd = true) {
  return Launch({.block = {64}, .warp_lanes = lanes, .is_of_amd = is_of_amd}, [] {
    float sums[MatrixCores<kLanes>::kSums] = {};
    const uint32_t zeros[4] = {};
    MatrixCores<kLanes>::Multiply(zeros, zeros, sums);
  });
}

TEST(MatrixCores, NeedTheirWarps) {
  EXPECT_TRUE(MultiplyOnWarpsOf<32>(32).ok());
  EXPECT_TRUE(MultiplyOnWarpsOf<64>(64).ok());
  const Status wide = MultiplyOnWarpsOf<64>(32), narrow = MultiplyOnWarpsOf<32>(64);
  EXPECT_NE(wide.message().find("64 lanes"), std::string::npos) << wide.message();
  EXPECT_NE(narrow.message().find("32 lanes"), std::string::npos) << narrow.message();
  EXPECT_FALSE(MultiplyOnWarpsOf<32>(32, /*is_of_amd=*/false).ok());
}

}  // namespace
}  // namespace pagemill::gpu
