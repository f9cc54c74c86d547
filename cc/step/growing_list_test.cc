#include "cc/step/growing_list.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::step {
namespace {

using Ints = GrowingList<int32_t>;

TEST(GrowingListTest, IsEmptyAtFirst) {
  Ints list;
  EXPECT_TRUE(list.empty());
  list.Append({});
  EXPECT_EQ(list, Ints({}));
  list.push_back(7);
  EXPECT_EQ(list.back(), 7);
}

TEST(GrowingListTest, ACopySharesMemoryAndStaysAsItIs) {
  Ints list = {1, 2, 3};
  list.push_back(4);  // there is room for a fifth now
  const Ints before = list;
  EXPECT_EQ(before.data(), list.data());
  list.push_back(5);
  EXPECT_EQ(before.data(), list.data());
  EXPECT_EQ(before, Ints({1, 2, 3, 4}));
  EXPECT_EQ(list, Ints({1, 2, 3, 4, 5}));
}

TEST(GrowingListTest, TheSecondCopyThatGrowsHasItsOwnMemory) {
  Ints a = {1, 2, 3};
  a.push_back(4);
  Ints b = a;
  a.push_back(5);
  b.push_back(6);
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(a, Ints({1, 2, 3, 4, 5}));
  EXPECT_EQ(b, Ints({1, 2, 3, 4, 6}));
}

TEST(GrowingListTest, MovesItsItemsRarely) {
  Ints list;
  int num_moves = 0;
  for (int32_t i = 0; i < 10'000; ++i) {
    const int32_t* before = list.data();
    const Ints copy = list;
    list.push_back(i);
    num_moves += list.data() != before;
  }
  EXPECT_LE(num_moves, 15);  // log2(10,000), rounded up, and the first
}

TEST(GrowingListTest, RandomCopiesAgreeWithVectors) {
  std::mt19937 random(5);
  std::vector<Ints> lists(4);
  std::vector<std::vector<int32_t>> expected(4);
  for (int i = 0; i < 3000; ++i) {
    const size_t to = random() % 4, from = random() % 4;
    if (random() % 8 == 0) {
      lists[to] = lists[from];
      expected[to] = expected[from];
    }
    const std::vector<int32_t> more(random() % 3, i);
    lists[to].Append(more);
    expected[to].insert(expected[to].end(), more.begin(), more.end());
    for (size_t at = 0; at < 4; ++at) ASSERT_EQ(lists[at].ToVector(), expected[at]);
    if (i % 500 == 499) lists.assign(4, {}), expected.assign(4, {});
  }
}

}  // namespace
}  // namespace pagemill::step
