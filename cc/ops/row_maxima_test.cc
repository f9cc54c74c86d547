#include "cc/ops/row_maxima.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pagemill::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

RowMaximum Of(const std::vector<float>& row) {
  RowMaximum maximum;
  Observe(row.data(), static_cast<int64_t>(row.size()), 0, &maximum);
  return maximum;
}

TEST(RowMaximaTest, TheLowestColumnOfTheLargestWins) {
  EXPECT_EQ(Of({1, 3, 2, 3}).column, 1);
  EXPECT_EQ(Of({1, 3, 2, 3}).logit, 3.0f);
  EXPECT_EQ(Of({-0.0f, 0.0f}).column, 0) << "0 and -0 are equal";
  EXPECT_EQ(Of({0.0f, -0.0f}).column, 0);
  std::vector<float> long_row(100, -1.0f);
  long_row[40] = long_row[99] = 7;
  EXPECT_EQ(Of(long_row).column, 40);
}

TEST(RowMaximaTest, RowsWithoutAMaximumAreNotUsable) {
  EXPECT_FALSE(Of({}).usable());
  EXPECT_FALSE(Of({-kInfinity, -kInfinity}).usable());
  EXPECT_TRUE(Of({-kInfinity, -3.0e38f}).usable());
  for (const float bad : {kInfinity, kNaN, -kNaN}) {
    for (const size_t at : {size_t{0}, size_t{33}, size_t{69}}) {
      std::vector<float> row(70, 1.0f);
      row[at] = bad;
      const RowMaximum maximum = Of(row);
      EXPECT_FALSE(maximum.usable()) << at;
      EXPECT_EQ(maximum.logit, kInfinity) << at;
    }
  }
}

// Pieces observed in any order by any number of observers, merged in any order.
TEST(RowMaximaTest, PiecesInAnyOrderGiveTheSame) {
  std::minstd_rand random(3);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<float> row(1 + random() % 300);
    for (float& x : row) x = static_cast<float>(random() % 5);
    if (repeat % 10 == 0) row[random() % row.size()] = kNaN;
    if (repeat % 10 == 1) std::fill(row.begin(), row.end(), -kInfinity);
    std::vector<size_t> starts;
    const size_t piece = 1 + random() % 70;
    for (size_t i = 0; i < row.size(); i += piece) starts.push_back(i);
    std::shuffle(starts.begin(), starts.end(), random);
    std::vector<RowMaximum> observers(3);
    for (size_t start : starts) {
      const size_t size = std::min(piece, row.size() - start);
      Observe(&row[start], static_cast<int64_t>(size), static_cast<int64_t>(start),
              &observers[random() % observers.size()]);
    }
    std::shuffle(observers.begin(), observers.end(), random);
    RowMaximum merged;
    for (const RowMaximum& observer : observers) Merge(observer, &merged);
    EXPECT_EQ(merged.column, Of(row).column);
    EXPECT_EQ(merged.logit, Of(row).logit);
  }
}

}  // namespace
}  // namespace pagemill::ops
