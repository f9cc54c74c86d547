// File: cc/ops/tiles/machine_tiles.h
// The AMX tile registers as inline assembly: register numbers as template arguments, which the
// compiler's macros do not take, and operands whose extent it knows. GCC 12's own _tile_loadconfig
// declares that it reads only 8 of its 64 bytes, so the stores to the others may be removed. For
// files compiled for AMX only.
#ifndef PAGEMILL_CC_OPS_TILES_MACHINE_TILES_H_
#define PAGEMILL_CC_OPS_TILES_MACHINE_TILES_H_

#include <cstdint>

#include "cc/device/tile_config.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] static inline

namespace pagemill::ops {
namespace {

struct MachineTiles {
  PAGEMILL_INLINE void Configure(const device::TileConfig& config) {
    asm volatile("ldtilecfg %0" ::"m"(config));
  }

  PAGEMILL_INLINE void Release() { asm volatile("tilerelease"); }

  template <int kTo>
  PAGEMILL_INLINE void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTo));
  }

  template <int kTo>
  PAGEMILL_INLINE void Load(const void* from, int64_t stride_bytes) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTo), "r"(from), "r"(stride_bytes)
                 : "memory");
  }

  template <int kFrom>
  PAGEMILL_INLINE void Store(void* to, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kFrom), "r"(to), "r"(stride_bytes)
                 : "memory");
  }

  template <int kSums, int kA, int kB>
  PAGEMILL_INLINE void Multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }

  template <int kSums, int kA, int kB>
  PAGEMILL_INLINE void MultiplyBytes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }

  template <int kSums, int kA, int kB>
  PAGEMILL_INLINE void MultiplyUnsigned() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace pagemill::ops

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_TILES_MACHINE_TILES_H_
