#include "cc/step/token_list.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::step {
namespace {

// The first `size` of 1, 2, 3, ...
std::vector<int32_t> Counted(size_t size) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < size; ++i) ids.push_back(static_cast<int32_t>(i) + 1);
  return ids;
}

constexpr size_t kMost = 3 * TokenList::kNumInside;

TEST(TokenListTest, GrowsFromInsideToTheHeap) {
  TokenList list;
  EXPECT_TRUE(list.empty());
  for (size_t size = 1; size <= kMost; ++size) {
    list.push_back(static_cast<int32_t>(size));
    EXPECT_EQ(list, Counted(size));
    EXPECT_EQ(list.back(), static_cast<int32_t>(size));
    EXPECT_EQ(list.ToVector(), Counted(size));
  }
}

TEST(TokenListTest, CopiesAreIndependentAndMovesLeaveAnEmptyList) {
  for (size_t size = 0; size <= kMost; ++size) {
    TokenList list = Counted(size);
    TokenList copy = list;
    for (int32_t& id : copy) ++id;
    EXPECT_EQ(list, Counted(size));
    TokenList moved = std::move(copy);
    EXPECT_TRUE(copy.empty());
    EXPECT_EQ(moved.size(), size);
    moved = list;
    EXPECT_EQ(moved, list);
    list = std::move(moved);
    EXPECT_TRUE(moved.empty());
    moved.push_back(9);
    EXPECT_EQ(moved, TokenList({9}));
    EXPECT_EQ(list, Counted(size));
  }
}

TEST(TokenListTest, AppendsAndTruncates) {
  for (size_t first = 0; first <= kMost; ++first) {
    TokenList list = Counted(first);
    const std::vector<int32_t> all = Counted(kMost);
    list.Append(std::span(all).subspan(first));
    EXPECT_EQ(list, all);
    list.Truncate(first);
    EXPECT_EQ(list, Counted(first));
    list.clear();
    EXPECT_EQ(list, TokenList());
    EXPECT_NE(list, TokenList({1}));
  }
}

}  // namespace
}  // namespace pagemill::step
