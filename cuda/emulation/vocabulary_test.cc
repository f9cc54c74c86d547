// Correct kernels give correct results for every seed; kernels with one rule removed do not.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "cuda/emulation/launch.h"
#include "cuda/emulation/vocabulary_kernels.h"

namespace pagemill::gpu {
namespace {

using emulation::Launch;
using emulation::LaunchOptions;

constexpr uint64_t kSeeds = 4;
constexpr int kThreads = 128, kRows = 3, kSize = 200;

std::vector<float> Numbers(int count) {
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i * 37 % 101 - 50));
  return numbers;
}

struct Result {
  Status status;
  bool equal = false;
};

template <Mutation kMutation>
Result RunSumRows(uint64_t seed, int warp_lanes) {
  const std::vector<float> x = Numbers(kRows * kSize);
  std::vector<float> totals(kRows, NAN), expected(kRows, 0);
  for (size_t i = 0; i < x.size(); ++i) expected[i / kSize] += x[i];
  const LaunchOptions options = {
      .grid = {kRows}, .block = {kThreads}, .warp_lanes = warp_lanes, .seed = seed};
  Status status = Launch(options, [&] { SumRows<kMutation>(x.data(), kSize, totals.data()); });
  return {status, totals == expected};
}

template <Mutation kMutation>
Result RunReverseGroups(uint64_t seed) {
  const std::vector<float> x = Numbers(4 * kThreads);
  alignas(16) float from[4 * kThreads], y[4 * kThreads];
  for (size_t i = 0; i < x.size(); ++i) from[i] = x[i];
  const LaunchOptions options = {
      .block = {kThreads}, .shared_bytes = int64_t{sizeof(from)}, .seed = seed};
  Status status = Launch(options, [&] { ReverseGroups<kMutation>(from, y); });
  bool equal = true;
  for (size_t i = 0; i < x.size(); ++i) {
    equal = equal && y[i] == x[(kThreads - 1 - i / 4) * 4 + i % 4];
  }
  return {status, equal};
}

// Two ranks, each launched by a thread; the second when the first is done if that does not wait.
template <Mutation kMutation>
Result RunSwapWithPeer(uint64_t seed, uint64_t limit_ns = 60'000'000'000) {
  struct Rank {
    std::vector<float> x = Numbers(kThreads);
    std::vector<float> inbox = std::vector<float>(kThreads, NAN);
    std::vector<float> y = std::vector<float>(kThreads, NAN);
    uint64_t arrival = 0;
    Status status;
  };
  Rank ranks[2];
  for (float& x : ranks[1].x) x += 1000;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Rank& own = ranks[r];
      Rank& peer = ranks[1 - r];
      own.status = Launch({.block = {kThreads}, .seed = 2 * seed + r}, [&] {
        SwapWithPeer<kMutation>(own.x.data(), peer.inbox.data(), &peer.arrival, own.inbox.data(),
                                &own.arrival, limit_ns, own.y.data());
      });
    });
    if (kMutation == Mutation::kNoWait || limit_ns == 0) threads.back().join();
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  bool equal = true;
  for (size_t r = 0; r < 2; ++r) {
    const std::vector<float> expected(ranks[1 - r].x.rbegin(), ranks[1 - r].x.rend());
    equal = equal && ranks[r].y == expected;
  }
  return {ranks[0].status.ok() ? ranks[1].status : ranks[0].status, equal};
}

void ExpectError(const Result& result, const std::string& part) {
  EXPECT_EQ(result.status.code(), StatusCode::kInternal);
  EXPECT_NE(result.status.message().find(part), std::string::npos) << result.status.message();
  EXPECT_NE(result.status.message().find("vocabulary_kernels.h:"), std::string::npos);
}

TEST(Vocabulary, BlocksSumWithWarpsOf32And64Lanes) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (int lanes : {32, 64}) {
      const Result result = RunSumRows<Mutation::kNone>(seed, lanes);
      EXPECT_TRUE(result.status.ok()) << result.status.message();
      EXPECT_TRUE(result.equal);
    }
  }
}

// The order of the warps can happen to be the right one: 2 % of the seeds with blocks like these.
TEST(Vocabulary, ARemovedBarrierGivesAWrongSumForMostSeeds) {
  constexpr uint64_t kManySeeds = 40;
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= kManySeeds; ++seed) {
    wrong += RunSumRows<Mutation::kNoBarrier>(seed, 32).equal ? 0 : 1;
  }
  EXPECT_GE(wrong, kManySeeds * 3 / 4);
}

TEST(Vocabulary, AMaskThatNamesALaneElsewhereIsAnError) {
  ExpectError(RunSumRows<Mutation::kWrongMask>(1, 32), "a lane that the mask names");
}

TEST(Vocabulary, ABarrierInBothBranchesIsAnError) {
  ExpectError(RunSumRows<Mutation::kDivergentBarrier>(1, 32), "different barriers");
}

TEST(Vocabulary, ABarrierAfterAReturnIsAnError) {
  ExpectError(RunSumRows<Mutation::kEarlyReturn>(1, 32), "threads that returned");
}

TEST(Vocabulary, ALaunchAfterAFailedOneWorks) {
  EXPECT_FALSE(RunSumRows<Mutation::kEarlyReturn>(1, 32).status.ok());
  EXPECT_TRUE(RunSumRows<Mutation::kNone>(1, 32).equal);
}

TEST(Vocabulary, AsynchronousCopiesLandAtTheirWait) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Result result = RunReverseGroups<Mutation::kNone>(seed);
    EXPECT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_TRUE(result.equal);
    EXPECT_FALSE(RunReverseGroups<Mutation::kNoWait>(seed).equal);
  }
}

TEST(Vocabulary, RanksWaitForEachOther) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Result result = RunSwapWithPeer<Mutation::kNone>(seed);
    EXPECT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_TRUE(result.equal);
  }
}

TEST(Vocabulary, ARankThatDoesNotWaitForAnotherIsWrong) {
  EXPECT_FALSE(RunSwapWithPeer<Mutation::kNoWait>(1).equal);
  EXPECT_FALSE(RunSwapWithPeer<Mutation::kNone>(1, /*limit_ns=*/0).equal);
}

TEST(Vocabulary, ABarrierIsMissingBeforeARankArrivesOrBehindItsWait) {
  uint64_t before = 0, behind = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    before += RunSwapWithPeer<Mutation::kNoBarrier>(seed).equal ? 0 : 1;
    behind += RunSwapWithPeer<Mutation::kNoBarrierBehind>(seed).equal ? 0 : 1;
  }
  EXPECT_GE(before, kSeeds * 3 / 4);
  EXPECT_GE(behind, kSeeds * 3 / 4);
}

TEST(Vocabulary, CopiesWithoutAnyWaitAreAnError) {
  alignas(16) float from[4] = {}, to[4] = {};
  const Status status = Launch({}, [&] { CopyAsync16(to, from); });
  EXPECT_NE(status.message().find("without a wait"), std::string::npos) << status.message();
  EXPECT_TRUE(std::isnan(to[0]));
}

TEST(Vocabulary, AKernelThatIsLaunchedEarlyHasToAwaitItsInputs) {
  EXPECT_TRUE(Launch({.block = {64}, .early = true}, [] { AwaitInputs(); }).ok());
  const Status status = Launch({.block = {64}, .early = true}, [] {
    if (ThreadIndex().x != 40) AwaitInputs();
  });
  EXPECT_NE(status.message().find("AwaitInputs"), std::string::npos) << status.message();
}

TEST(Vocabulary, AShuffleFromOutsideItsMaskIsAnError) {
  const Status status = Launch({.block = {32}}, [] {
    if (Lane() < 2) Shuffle(LaneMask{3}, 1.0f, 2);
  });
  EXPECT_NE(status.message().find("not in its mask"), std::string::npos) << status.message();
}

TEST(Vocabulary, AWaitOutsideOfItsMaskIsAnError) {
  const Status status = Launch({.block = {32}}, [] { SyncWarp(1); });
  EXPECT_NE(status.message().find("not in the mask"), std::string::npos) << status.message();
}

TEST(Vocabulary, SharedMemoryIsPoisonedInEveryBlock) {
  float kept[2][2] = {};
  const Status status = Launch({.grid = {2}, .shared_bytes = 4}, [&] {
    PAGEMILL_SHARED(float, variable);
    kept[BlockIndex().x][0] = variable;
    kept[BlockIndex().x][1] = *DynamicShared<float>();
    variable = *DynamicShared<float>() = 1;
  });
  ASSERT_TRUE(status.ok()) << status.message();
  for (const auto& of_block : kept) {
    EXPECT_TRUE(std::isnan(of_block[0]) && std::isnan(of_block[1]));
  }
}

#if defined(__SANITIZE_ADDRESS__)
TEST(VocabularyDeathTest, AnAccessBehindSharedMemoryIsReported) {
  volatile int behind = 4;
  const auto read_static = [&] {
    PAGEMILL_SHARED(float[4], numbers);
    volatile float read = numbers[behind];
    (void)read;
  };
  const auto read_dynamic = [&] {
    volatile float read = DynamicShared<float>()[behind];
    (void)read;
  };
  EXPECT_DEATH((void)Launch({}, read_static).ok(), "heap-buffer-overflow");
  EXPECT_DEATH((void)Launch({.shared_bytes = 16}, read_dynamic).ok(), "heap-buffer-overflow");
}
#endif

TEST(Vocabulary, LanesVoteAndBroadcast) {
  for (int lanes : {32, 64}) {
    const std::vector<float> x = Numbers(kThreads);
    std::vector<float> first(kThreads);
    std::vector<uint64_t> kept(kMaxWarps), expected(kMaxWarps);
    const LaunchOptions options = {.block = {kThreads}, .warp_lanes = lanes};
    const Status status =
        Launch(options, [&] { VoteAndBroadcast(x.data(), kept.data(), first.data()); });
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < kThreads; ++i) {
      const size_t at = static_cast<size_t>(i), warp = static_cast<size_t>(i / lanes);
      if (x[at] > 0) expected[warp] |= uint64_t{1} << (i % lanes);
      EXPECT_EQ(first[at], x[warp * static_cast<size_t>(lanes)]);
    }
    EXPECT_EQ(kept, expected);
  }
}

TEST(Vocabulary, TensorCoresMultiplyByTheirFragments) {
  constexpr int kDepth = 32;
  std::vector<BFloat16> a, b;
  for (float value : Numbers(16 * kDepth)) a.push_back(FromFloat<BFloat16>(value));
  for (float value : Numbers(8 * kDepth)) b.push_back(FromFloat<BFloat16>(value + 3));
  std::vector<float> c(16 * 8, NAN);
  const Status status =
      Launch({.block = {32}}, [&] { MultiplyTile(a.data(), b.data(), kDepth, c.data()); });
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      float sum = 0;  // exact: small integers
      for (size_t k = 0; k < kDepth; ++k) {
        sum += ToFloat(a[row * kDepth + k]) * ToFloat(b[column * kDepth + k]);
      }
      EXPECT_EQ(c[row * 8 + column], sum);
    }
  }
}

TEST(Vocabulary, TensorCoresMultiplyInt8) {
  constexpr int kDepth = 64;
  std::vector<int8_t> a, b;
  for (int i = 0; i < 16 * kDepth; ++i) a.push_back(static_cast<int8_t>(i * 37 % 256 - 128));
  for (int i = 0; i < 8 * kDepth; ++i) b.push_back(static_cast<int8_t>(i * 91 % 256 - 128));
  std::vector<int32_t> c(16 * 8, -1);
  const Status status =
      Launch({.block = {32}}, [&] { MultiplyTile(a.data(), b.data(), kDepth, c.data()); });
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      int32_t sum = 0;
      for (size_t k = 0; k < kDepth; ++k) sum += a[row * kDepth + k] * b[column * kDepth + k];
      EXPECT_EQ(c[row * 8 + column], sum);
    }
  }
}

TEST(Vocabulary, MatricesAreLoadedTransposed) {
  std::vector<uint16_t> x(4 * 64), y(4 * 64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  const LaunchOptions options = {.block = {32}, .shared_bytes = 512};
  const Status status = Launch(
      options, [&] { TransposeMatrices(x.data(), reinterpret_cast<uint32_t*>(y.data())); });
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], x[i / 64 * 64 + i % 8 * 8 + i % 64 / 8]);
  }
}

TEST(Vocabulary, TensorCoresNeedWarpsOf32Lanes) {
  const Status status = Launch({.block = {64}, .warp_lanes = 64}, [] {
    float c[4] = {};
    Mma16x8x16(c, {0, 0, 0, 0}, {0, 0});
  });
  EXPECT_NE(status.message().find("32 lanes"), std::string::npos) << status.message();
}

TEST(Vocabulary, TensorCoresAreNotOfAmd) {
  const Status status = Launch({.block = {32}, .is_of_amd = true}, [] {
    float c[4] = {};
    Mma16x8x16(c, {0, 0, 0, 0}, {0, 0});
  });
  EXPECT_NE(status.message().find("NVIDIA"), std::string::npos) << status.message();
}

TEST(Vocabulary, LanesOfAMaskAreCounted) {
  EXPECT_EQ(CountBits(0), 0);
  EXPECT_EQ(CountBits(~LaneMask{0}), 64);
  EXPECT_EQ(CountBits(LaneMask{1} << 63 | 0b101), 3);
}

TEST(Vocabulary, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(FromFloat<BFloat16>(1.0f).bits, 0x3f80);
  EXPECT_EQ(FromFloat<BFloat16>(BitsToFloat(0x3f808000u)).bits, 0x3f80);
  EXPECT_EQ(FromFloat<BFloat16>(BitsToFloat(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(FromFloat<BFloat16>(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(ToFloat(FromFloat<BFloat16>(BitsToFloat(0x7f800001u)))));
  EXPECT_EQ(PackBFloat16(1, BitsToFloat(0x3f818000u)), 0x3f823f80u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(WithByte(0x4b400099u, 0x04030201u, i), 0x4b400001u + static_cast<uint32_t>(i));
  }
}

TEST(Launch, ImpossibleBlocksAreRefused) {
  EXPECT_EQ(Launch({.block = {1025}}, [] {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Launch({.block = {0}}, [] {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Launch({.warp_lanes = 48}, [] {}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::gpu
