// AMX multiply-add peaks: 2 x 2 tiles of sums, both operands loaded for each step, from a span that
// fits L1 or one that fits only L2. Values are random: zeros multiply faster than real data.
#include "cc/device/peak_kernels.h"
#include "cc/device/tile_config.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagemill::device {

#if defined(__x86_64__)
namespace {

constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;
constexpr int kTileBytes = kTileRows * kTileRowBytes;
constexpr int64_t kStepBytes = 4 * kTileBytes;  // two tiles of each operand
// L1 of the CPUs that have AMX is 48 KiB, L2 2 MiB.
constexpr int64_t kL1Bytes = 16 << 10;
constexpr int64_t kL2Bytes = 1 << 20;

// Configures eight full tiles for the calling thread. Does not use _tile_loadconfig: GCC 12's
// version declares that it reads 8 of the 64 bytes, so stores to the others may be removed.
void ConfigureTiles() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = kTileRows;
  }
  asm volatile("ldtilecfg %0" : : "m"(config));
}

[[gnu::target("amx-tile")]] void LoadOperands(const std::byte* from) {
  _tile_loadd(4, from, kTileRowBytes);
  _tile_loadd(5, from + kTileBytes, kTileRowBytes);
  _tile_loadd(6, from + 2 * kTileBytes, kTileRowBytes);
  _tile_loadd(7, from + 3 * kTileBytes, kTileRowBytes);
}

// Operations of one step: 2 x 2 products of 16 x 16 sums over `depth` values.
double StepOperations(int depth) { return 4 * 2.0 * kTileRows * kTileRows * depth; }

template <int64_t kSpanBytes>
[[gnu::target("amx-tile,amx-bf16")]] double MultiplyBf16(const std::byte* operands, int64_t steps) {
  ConfigureTiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < steps; ++step) {
    LoadOperands(operands + step * kStepBytes % kSpanBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return StepOperations(32) * static_cast<double>(steps);
}

template <int64_t kSpanBytes>
[[gnu::target("amx-tile,amx-int8")]] double MultiplyInt8(const std::byte* operands, int64_t steps) {
  ConfigureTiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < steps; ++step) {
    LoadOperands(operands + step * kStepBytes % kSpanBytes);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return StepOperations(64) * static_cast<double>(steps);
}

bool HasBf16(const Capabilities& caps) { return caps.cpu.amx_bf16; }
bool HasInt8(const Capabilities& caps) { return caps.cpu.amx_int8; }

constexpr PeakKernel kKernels[] = {
    {"amx_bf16", "bf16", "L1", HasBf16, kL1Bytes, MultiplyBf16<kL1Bytes>},
    {"amx_bf16", "bf16", "L2", HasBf16, kL2Bytes, MultiplyBf16<kL2Bytes>},
    {"amx_int8", "int8", "L1", HasInt8, kL1Bytes, MultiplyInt8<kL1Bytes>},
    {"amx_int8", "int8", "L2", HasInt8, kL2Bytes, MultiplyInt8<kL2Bytes>},
};

}  // namespace

std::span<const PeakKernel> TilePeaksX86() { return kKernels; }

#else

std::span<const PeakKernel> TilePeaksX86() { return {}; }

#endif

}  // namespace pagemill::device
