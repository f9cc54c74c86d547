// AMX tiles of the CPU, if it has them (tools/amx emulates one that does): the operating system
// preserves the tiles of each thread.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "cc/device/capabilities.h"
#include "cc/device/tile_config.h"
#include "cc/ops/tiles/tile_hold.h"

namespace pagemill::ops {
namespace {

#if defined(__x86_64__)

void StayOnCpu(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  ASSERT_EQ(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
}

// Holds tiles of random sizes and contents `rounds` times while the other thread does, too.
void HoldRandomTiles(int cpu, uint32_t seed, int rounds) {
  ASSERT_NO_FATAL_FAILURE(StayOnCpu(cpu));
  std::mt19937 random(seed);
  const auto before = std::make_unique<TileImage>();
  const auto after = std::make_unique<TileImage>();
  for (int round = 0; round < rounds; ++round) {
    device::TileConfig config;
    std::memset(after->bytes, 0, sizeof(after->bytes));
    std::memset(before->bytes, 0, sizeof(before->bytes));
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(1 + random() % 16);
      config.row_bytes[tile] = static_cast<uint16_t>(4 * (1 + random() % 16));
      for (int row = 0; row < config.rows[tile]; ++row) {
        for (int i = 0; i < config.row_bytes[tile]; ++i) {
          before->bytes[tile][row][i] = static_cast<uint8_t>(random());
        }
      }
    }
    HoldTiles(
        config, *before, [] { sched_yield(); }, after.get());
    ASSERT_EQ(std::memcmp(before->bytes, after->bytes, sizeof(before->bytes)), 0)
        << "round " << round;
  }
}

TEST(MachineTiles, OutliveASwitchToAThreadThatUsesThemToo) {
  if (!device::DetectCapabilities().cpu.amx_int8) GTEST_SKIP() << "needs AMX";
  const int cpu = sched_getcpu();
  ASSERT_GE(cpu, 0);
  std::thread first([cpu] { HoldRandomTiles(cpu, 1, 1000); });
  std::thread second([cpu] { HoldRandomTiles(cpu, 2, 1000); });
  first.join();
  second.join();
}

#endif

}  // namespace
}  // namespace pagemill::ops
