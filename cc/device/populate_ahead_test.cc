#include "cc/device/populate_ahead.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

namespace pagemill::device {
namespace {

const Activity idle;
constexpr size_t kSize = (size_t{5} << 20) + 12'345;  // ends within a piece and within a page

class Mapping {
 public:
  Mapping()
      : data_(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapping() { munmap(data_, kSize); }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), kSize}; }

  // The number of resident pages.
  int64_t Resident() const {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> state((kSize + page - 1) / page);
    EXPECT_EQ(mincore(data_, kSize, state.data()), 0);
    return std::count_if(state.begin(), state.end(), [](unsigned char s) { return (s & 1) != 0; });
  }
  static int64_t Pages() {
    const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    return (static_cast<int64_t>(kSize) + page - 1) / page;
  }

 private:
  void* data_;
};

TEST(PopulateAheadTest, EveryPageIsThereAfterwards) {
  const Mapping mapping;
  ASSERT_EQ(mapping.Resident(), 0);
  PopulateAhead ahead(mapping.bytes(), &idle);
  ahead.Wait();
  EXPECT_EQ(mapping.Resident(), Mapping::Pages());
}

TEST(PopulateAheadTest, ContentsStay) {
  const Mapping mapping;
  mapping.bytes()[100] = std::byte{7};
  mapping.bytes()[kSize - 1] = std::byte{9};
  PopulateAhead ahead(mapping.bytes(), &idle);
  ahead.Wait();
  EXPECT_EQ(mapping.bytes()[100], std::byte{7});
  EXPECT_EQ(mapping.bytes()[kSize - 1], std::byte{9});
  EXPECT_EQ(mapping.bytes()[kSize / 2], std::byte{0});
}

TEST(PopulateAheadTest, ARegionMayBeginWithinAPage) {
  const Mapping mapping;
  PopulateAhead ahead(mapping.bytes().subspan((size_t{1} << 19) + 3), &idle);
  ahead.Wait();
  EXPECT_GT(mapping.Resident(), 1);
  EXPECT_LT(mapping.Resident(), Mapping::Pages());
}

TEST(PopulateAheadTest, LittleIsLeftToItsFirstWrites) {
  const Mapping mapping;
  PopulateAhead ahead(mapping.bytes().first(PopulateAhead::kLeastBytes - 1), &idle);
  ahead.Wait();
  EXPECT_EQ(mapping.Resident(), 0);
  PopulateAhead nothing(std::span<std::byte>{}, &idle);
  nothing.Wait();
}

TEST(PopulateAheadTest, WhatOthersWriteMeanwhileStays) {
  const Mapping mapping;
  PopulateAhead ahead(mapping.bytes(), &idle);
  for (std::byte& byte : mapping.bytes()) byte = std::byte{5};
  ahead.Wait();
  for (std::byte byte : mapping.bytes()) ASSERT_EQ(byte, std::byte{5});
}

TEST(PopulateAheadTest, RestsWhileSomethingComputes) {
  const Mapping mapping;
  Activity activity;
  std::optional<Activity::Scope> computing(&activity);
  PopulateAhead ahead(mapping.bytes(), &activity);
  std::this_thread::sleep_for(2 * PopulateAhead::kRest);
  EXPECT_EQ(mapping.Resident(), 0);
  computing.reset();
  ahead.Wait();
  EXPECT_EQ(mapping.Resident(), Mapping::Pages());
}

TEST(PopulateAheadTest, StopsWhileItRests) {
  const Mapping mapping;
  Activity activity;
  const Activity::Scope computing(&activity);
  PopulateAhead ahead(mapping.bytes(), &activity);
}

TEST(PopulateAheadTest, StopsWhenItsOwnerGoes) {
  const Mapping mapping;
  for (int i = 0; i < 20; ++i) PopulateAhead ahead(mapping.bytes(), &idle);
}

}  // namespace
}  // namespace pagemill::device
