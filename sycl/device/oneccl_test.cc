#include "sycl/device/oneccl.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "sycl/device/testing/thread_ranks.h"

namespace pagemill::sycl {
namespace {

// What the library was last called with, on this thread.
struct Calls {
  uint32_t device = 99;
  size_t ranks = 0;
  int rank = -1;
  std::byte id = {};
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  void* queue = nullptr;
  int destroyed = 0;
};
thread_local Calls calls;

// Succeeds in all.
OnecclLibrary Library() {
  return {.set_device = [](uint32_t index) { return calls.device = index, 0; },
          .get_unique_id = [](OnecclId* id) { return id->bytes[4095] = std::byte{7}, 0; },
          .comm_init_rank =
              [](void** comm, size_t ranks, OnecclId id, int rank) {
                calls.ranks = ranks;
                calls.rank = rank;
                calls.id = id.bytes[4095];
                *comm = &calls;
                return 0;
              },
          .comm_destroy = [](void* comm) { return static_cast<Calls*>(comm)->destroyed++, 0; },
          .all_gather =
              [](const void* from, void* to, size_t count, int type, void* comm, void* queue) {
                calls.from = from;
                calls.to = to;
                calls.count = count;
                calls.queue = queue;
                return type == 1 && comm == &calls ? 0 : 3;
              },
          .error_text = [](int error) { return error == 2 ? "a wrong system" : "other"; }};
}

TEST(Oneccl, RanksJoinByTheFirstOnesId) {
  testing::RunRanks(3, [](const device::Ranks& ranks) {
    auto oneccl = Oneccl::Join(Library(), ranks, 4 + ranks.rank);
    ASSERT_TRUE(oneccl.ok()) << oneccl.status().ToString();
    ASSERT_NE(*oneccl, nullptr);
    EXPECT_EQ(calls.device, 4u + static_cast<uint32_t>(ranks.rank));
    EXPECT_EQ(calls.ranks, 3u);
    EXPECT_EQ(calls.rank, ranks.rank);
    EXPECT_EQ(calls.id, std::byte{7});
    std::byte from[5], to[15];
    int queue = 0;
    EXPECT_TRUE((*oneccl)->Gather(from, 5, to, &queue).ok());
    EXPECT_EQ(calls.from, from);
    EXPECT_EQ(calls.to, to);
    EXPECT_EQ(calls.count, 5u);
    EXPECT_EQ(calls.queue, &queue);
    oneccl->reset();
    EXPECT_EQ(calls.destroyed, 1);
  });
}

TEST(Oneccl, IsNotUsedUnlessAllRanksHaveIt) {
  testing::RunRanks(2, [](const device::Ranks& ranks) {
    const StatusOr<OnecclLibrary> missing = FailedPrecondition("missing");
    const auto oneccl =
        Oneccl::Join(ranks.rank == 0 ? StatusOr<OnecclLibrary>(Library()) : missing, ranks, 0);
    ASSERT_TRUE(oneccl.ok());
    EXPECT_EQ(*oneccl, nullptr);
    EXPECT_EQ(calls.rank, -1);
  });
}

// As on a machine without a GPU.
TEST(Oneccl, IsNotUsedIfItMakesNoGroupOrKnowsNoDevice) {
  for (const int32_t failing : {0, 1}) {
    testing::RunRanks(2, [&](const device::Ranks& ranks) {
      OnecclLibrary library = Library();
      if (failing == 0) library.get_unique_id = [](OnecclId*) { return 1; };
      if (failing == 1 && ranks.rank == 1) library.set_device = [](uint32_t) { return 1; };
      const auto oneccl = Oneccl::Join(library, ranks, 0);
      ASSERT_TRUE(oneccl.ok());
      EXPECT_EQ(*oneccl, nullptr);
    });
  }
}

TEST(Oneccl, AllRanksFailIfOneCannotJoin) {
  testing::RunRanks(2, [](const device::Ranks& ranks) {
    OnecclLibrary library = Library();
    if (ranks.rank == 1) library.comm_init_rank = [](void**, size_t, OnecclId, int) { return 2; };
    const Status status = Oneccl::Join(library, ranks, 0).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    const std::string expected =
        ranks.rank == 1 ? "to join the ranks: a wrong system" : "to join another rank";
    EXPECT_NE(status.message().find(expected), std::string::npos) << status.ToString();
    EXPECT_EQ(calls.destroyed, ranks.rank == 1 ? 0 : 1);
  });
}

}  // namespace
}  // namespace pagemill::sycl
