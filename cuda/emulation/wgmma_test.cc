// A kernel with every word of gpu_wgmma.h gives correct results for every seed, and does not with
// one rule removed.
#include "cuda/gpu_wgmma.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"
#include "cuda/emulation/launch.h"

namespace pagemill::gpu {
namespace {

enum class Mutation {
  kNone,
  kDoesNotAwaitTiles,
  kDoesNotAwaitProducts,
  kExpectsTooFewBytes,
  kOverwritesStages,
  kDoesNotInitialize,
};

constexpr int kRows = 24, kOutputs = 128, kStages = 2, kSteps = 5;
constexpr int kColumns = kTileRowBytes / 2, kSize = kSteps * kColumns;
constexpr int kThreads = 2 * kWarpgroupThreads;
constexpr uint64_t kSeeds = 6;

struct Shared {
  uint8_t w[kStages][kOutputs * kTileRowBytes];
  uint8_t x[kStages][32 * kTileRowBytes];  // a multiple of the alignment
  uint32_t results[4][32][4];              // of a warp, of matrices [8, 8]
  uint64_t full[kStages], empty[kStages];
};

// y [kRows, outputs] = x [kRows, kSize] times the matrix of `map` [outputs, kSize], transposed. The
// second warpgroup copies, and the first multiplies in two parts.
template <Mutation kMutation>
PAGEMILL_KERNEL MultiplyStages(const PAGEMILL_GRID_CONSTANT TileMap map, const BFloat16* x,
                               int outputs, int matrix, BFloat16* y) {
  auto& shared = *AlignedShared<Shared>();
  const int thread = static_cast<int>(ThreadIndex().x);
  const int copier = thread - kWarpgroupThreads;
  if (thread == 0 && kMutation != Mutation::kDoesNotInitialize) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&shared.full[i], 1 + kWarpgroupThreads);
      InitBarrier(&shared.empty[i], 1);
    }
    ShowBarriers();
  }
  SyncBlock();
  AwaitInputs();
  float sums[2][kRows / 2] = {};
  if (copier >= 0) GiveRegisters<40>();
  if (copier < 0) TakeRegisters<200>();
  for (int step = 0; step < kSteps; ++step) {
    const int stage = step % kStages;
    const uint32_t parity = step / kStages % 2;
    if (copier >= 0) {
      if (kMutation != Mutation::kOverwritesStages) AwaitPhase(&shared.empty[stage], parity ^ 1);
      if (copier == 0) {
        const int bytes = kOutputs * kTileRowBytes;
        ArriveExpecting(&shared.full[stage],
                        kMutation == Mutation::kExpectsTooFewBytes ? bytes / 2 : bytes);
        LoadTile(shared.w[stage], map, step * kColumns, /*row=*/0, matrix, &shared.full[stage]);
      }
      for (int i = copier; i < kRows * kTilePieces; i += kWarpgroupThreads) {
        const int row = i / kTilePieces, piece = i % kTilePieces;
        CopyAsync16(shared.x[stage] + TilePiece(row, piece),
                    x + row * kSize + step * kColumns + piece * 8);
      }
      ArriveWhenCopied(&shared.full[stage]);
      continue;
    }
    if (kMutation != Mutation::kDoesNotAwaitTiles) AwaitPhase(&shared.full[stage], parity);
    ShowProducts();
    StartProduct<kRows, 1>(shared.w[stage], shared.x[stage], /*warpgroup=*/0, sums);
    CommitProducts();
    if (kMutation != Mutation::kDoesNotAwaitProducts) AwaitProducts<0>(sums);
    if (thread == 0) Arrive(&shared.empty[stage]);
  }
  if (copier >= 0) return;
  AwaitProducts<0>(sums);
  auto& results = shared.results[Warp()];
  for (int part = 0; part < 2; ++part) {
    for (int i = 0; i < kRows / 8; ++i) {
      // Two matrices of eight outputs and rows; the others are copies of them.
      uint32_t pairs[4];
      for (int j = 0; j < 4; ++j) {
        const int first = 4 * i + j % 2 * 2;
        pairs[j] = PackBFloat16(sums[part][first], sums[part][first + 1]);
      }
      StoreTransposed(pairs, results[Lane()]);
      SyncWarp(AllLanes());
      // Lane j has row j % 8 of matrix j / 8.
      const auto* const eight = reinterpret_cast<const BFloat16*>(results[Lane()]);
      for (int k = 0; k < 8; ++k) {
        const int output = part * kProductRows + Warp() * 16 + Lane() / 8 % 2 * 8 + k;
        if (output < outputs) y[(8 * i + Lane() % 8) * outputs + output] = eight[k];
      }
      SyncWarp(AllLanes());
    }
  }
}

// y [outputs, 8] = w [outputs, kTileRowBytes] times the rows of x, which are rounded to e4m3, by 64
// outputs at a time of each block. The last block that is done sets `done`.
constexpr int kF8Outputs = 128, kF8Rows = 8;

struct F8Shared {
  uint8_t w[kProductRows * kTileRowBytes];
  uint8_t x[kF8Rows * kTileRowBytes];
  uint64_t full;
};

PAGEMILL_KERNEL MultiplyFloat8(const PAGEMILL_GRID_CONSTANT TileMap map, const float* x, float* y,
                               uint32_t* counter, int* done) {
  auto& shared = *AlignedShared<F8Shared>();
  const int thread = static_cast<int>(ThreadIndex().x);
  const int first_output = static_cast<int>(BlockIndex().x) * kProductRows;
  if (thread == 0) {
    InitBarrier(&shared.full, 1);
    ShowBarriers();
    ArriveExpecting(&shared.full, sizeof(shared.w));
    LoadTile(shared.w, map, /*column=*/0, first_output, /*matrix=*/0, &shared.full);
  }
  for (int i = thread; i < kF8Rows * kTileRowBytes / 4; i += kWarpgroupThreads) {
    const int row = i / (kTileRowBytes / 4), byte = i % (kTileRowBytes / 4) * 4;
    const float* const four = x + row * kTileRowBytes + byte;
    *reinterpret_cast<uint32_t*>(shared.x + TilePiece(row, byte / 16) + byte % 16) =
        PackFloat8(four[0], four[1], four[2], four[3]);
  }
  SyncBlock();
  AwaitPhase(&shared.full, 0);
  ShowProducts();
  float sums[1][kF8Rows / 2] = {};
  StartProduct<kF8Rows, 1, ProductType::kF8E4M3>(shared.w, shared.x, /*warpgroup=*/0, sums);
  CommitProducts();
  AwaitProducts<0>(sums);
  for (int i = 0; i < kF8Rows / 2; ++i) {
    const int output = first_output + Warp() * 16 + Lane() / 4 + 8 * (i / 2);
    y[output * kF8Rows + Lane() % 4 * 2 + i % 2] = sums[0][i];
  }
  if (CountWarp(counter, kF8Outputs / kProductRows * kWarpgroupThreads / 32) && Lane() == 0) ++*done;
}

struct Result {
  Status status;
  bool equal = false;
};

template <Mutation kMutation>
Result RunMultiplyStages(uint64_t seed) {
  constexpr int kMatrices = 2, kExisting = 120;  // outputs: less than those of the tile
  struct alignas(16) Eight {
    BFloat16 values[8];
  };
  const auto numbers = [](int count) {
    std::vector<Eight> all(static_cast<size_t>(count) / 8);
    for (int i = 0; i < count; ++i) {
      all[static_cast<size_t>(i) / 8].values[i % 8] = {
          FloatToBf16(static_cast<float>(i * 37 % 13 - 6) / 8)};
    }
    return all;
  };
  const auto w = numbers(kMatrices * kExisting * kSize), x = numbers(kRows * kSize);
  const auto at = [](const std::vector<Eight>& all, int i) {
    return ToFloat(all[static_cast<size_t>(i) / 8].values[i % 8]);
  };
  TileMap map = {};
  EXPECT_EQ(MakeTileMap({.data = w.data(),
                         .type = ProductType::kBf16,
                         .matrices = kMatrices,
                         .rows = kExisting,
                         .columns = kSize,
                         .matrix_bytes = kExisting * kSize * 2,
                         .row_bytes = kSize * 2,
                         .tile_rows = kOutputs},
                        map),
            emulatedSuccess);
  std::vector<BFloat16> y(kRows * kExisting, BFloat16{0x7fc0});
  const emulation::LaunchOptions options = {.block = {kThreads},
                                            .shared_bytes = sizeof(Shared) + kSharedAlignment,
                                            .seed = seed,
                                            .early = true};
  const Status status = emulation::Launch(options, [&] {
    MultiplyStages<kMutation>(map, x[0].values, kExisting, /*matrix=*/1, y.data());
  });
  bool equal = true;
  for (int row = 0; row < kRows; ++row) {
    for (int output = 0; output < kExisting; ++output) {
      float sum = 0;  // exact
      for (int k = 0; k < kSize; ++k) {
        sum += at(x, row * kSize + k) * at(w, (kExisting + output) * kSize + k);
      }
      const BFloat16 got = y[static_cast<size_t>(row * kExisting + output)];
      equal = equal && got.bits == FloatToBf16(sum);
    }
  }
  return {status, equal};
}

template <Mutation kMutation>
int CountWrong() {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Result result = RunMultiplyStages<kMutation>(seed);
    wrong += result.status.ok() && result.equal ? 0 : 1;
  }
  return wrong;
}

void ExpectError(const Result& result, const std::string& part) {
  EXPECT_EQ(result.status.code(), StatusCode::kInternal);
  EXPECT_NE(result.status.message().find(part), std::string::npos) << result.status.message();
  EXPECT_NE(result.status.message().find("wgmma_test.cc:"), std::string::npos);
}

TEST(Wgmma, StagesAreMultipliedForEverySeed) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Result result = RunMultiplyStages<Mutation::kNone>(seed);
    EXPECT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_TRUE(result.equal);
  }
}

TEST(Wgmma, TilesThatAreNotAwaitedGiveAWrongResult) {
  EXPECT_GE(CountWrong<Mutation::kDoesNotAwaitTiles>(), kSeeds / 2);
}

TEST(Wgmma, StagesThatAreOverwrittenGiveAWrongResult) {
  EXPECT_EQ(CountWrong<Mutation::kOverwritesStages>(), kSeeds);
}

TEST(Wgmma, StagesThatAreReleasedTooEarlyGiveAWrongResult) {
  EXPECT_EQ(CountWrong<Mutation::kDoesNotAwaitProducts>(), kSeeds);
}

TEST(Wgmma, APhaseThatDoesNotEndIsAnError) {
  ExpectError(RunMultiplyStages<Mutation::kExpectsTooFewBytes>(1), "does not end");
}

class Float8Products : public ::testing::Test {
 protected:
  Status Run(uint64_t seed) {
    for (int i = 0; i < kF8Outputs * kTileRowBytes; ++i) {
      w_[static_cast<size_t>(i) / 16].bytes[i % 16] = FloatToF8E4M3(W(i));
    }
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 11) - 5;
    TileMap map = {};
    EXPECT_EQ(MakeTileMap({.data = w_.data(),
                           .type = ProductType::kF8E4M3,
                           .matrices = 1,
                           .rows = kF8Outputs,
                           .columns = kTileRowBytes,
                           .matrix_bytes = kF8Outputs * kTileRowBytes,
                           .row_bytes = kTileRowBytes,
                           .tile_rows = kProductRows},
                          map),
              emulatedSuccess);
    return emulation::Launch({.grid = {kF8Outputs / kProductRows},
                              .block = {kWarpgroupThreads},
                              .shared_bytes = sizeof(F8Shared) + kSharedAlignment,
                              .seed = seed},
                             [&] { MultiplyFloat8(map, x_.data(), y_.data(), &counter_, &done_); });
  }
  static float W(int i) { return static_cast<float>(i * 37 % 13 - 6) / 8; }
  float Product(int output, int row) const {
    float sum = 0;  // exact
    for (int k = 0; k < kTileRowBytes; ++k) {
      sum += W(output * kTileRowBytes + k) * x_[static_cast<size_t>(row * kTileRowBytes + k)];
    }
    return sum;
  }

  struct alignas(16) Sixteen {
    uint8_t bytes[16];
  };
  std::vector<Sixteen> w_{kF8Outputs * kTileRowBytes / 16};
  std::vector<float> x_ = std::vector<float>(kF8Rows * kTileRowBytes);
  std::vector<float> y_ = std::vector<float>(kF8Outputs * kF8Rows);
  uint32_t counter_ = 0;
  int done_ = 0;
};

TEST_F(Float8Products, AreThoseOfRoundedNumbers) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Status status = Run(seed);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < kF8Outputs * kF8Rows; ++i) {
      EXPECT_EQ(y_[static_cast<size_t>(i)], Product(i / kF8Rows, i % kF8Rows)) << i;
    }
  }
}

TEST_F(Float8Products, TheLastWarpIsFoundAndCountersAreZeroAgain) {
  EXPECT_TRUE(Run(1).ok());
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(counter_, 0u);
  counter_ = 9;
  const Status status = Run(2);
  EXPECT_NE(status.message().find("was not 0 before the first"), std::string::npos)
      << status.message();
}

TEST(Wgmma, ABarrierIsInitialized) {
  ExpectError(RunMultiplyStages<Mutation::kDoesNotInitialize>(1), "before InitBarrier()");
}

}  // namespace
}  // namespace pagemill::gpu
