#include "cc/device/isa.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sys/auxv.h>
#endif

namespace pagemill::device {
namespace {

bool Bit(uint64_t word, int bit) { return ((word >> bit) & 1) != 0; }

#if defined(__x86_64__)

// Bits of XCR0: which register files the operating system saves on a context switch.
constexpr uint64_t kXcr0Avx = 0x6;        // SSE and YMM
constexpr uint64_t kXcr0Avx512 = 0xe6;    // the above, opmask, ZMM 0-15 and ZMM 16-31
constexpr uint64_t kXcr0Tiles = 0x60000;  // TILECFG and TILEDATA

uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux grants tile data on request (arch_prctl(2), ARCH_REQ_XCOMP_PERM); without it the first tile
// instruction kills the process.
bool RequestTilePermission() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

#elif defined(__aarch64__)

// Bits of AT_HWCAP and AT_HWCAP2 (linux/arch/arm64/include/uapi/asm/hwcap.h).
constexpr int kHwcapAsimdDp = 20;
constexpr int kHwcap2I8mm = 13;
constexpr int kHwcap2Bf16 = 14;

#elif defined(__s390x__)

// Bits of AT_HWCAP (linux/arch/s390/include/asm/elf.h).
constexpr int kHwcapVxrsExt = 13;

#endif

}  // namespace

#if defined(__x86_64__)

void DetectIsa(CpuCapabilities& caps) {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return;
  const bool os_saves_wide_registers = Bit(c, 27);
  if (!os_saves_wide_registers) return;
  const uint64_t xcr0 = ReadXcr0();
  const bool fma_f16c_avx = Bit(c, 12) && Bit(c, 29) && Bit(c, 28);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
  caps.avx2 = fma_f16c_avx && Bit(b, 5) && (xcr0 & kXcr0Avx) == kXcr0Avx;
  const bool f_dq_bw_vl = Bit(b, 16) && Bit(b, 17) && Bit(b, 30) && Bit(b, 31);
  caps.avx512 = caps.avx2 && f_dq_bw_vl && (xcr0 & kXcr0Avx512) == kXcr0Avx512;
  caps.avx512_vnni = caps.avx512 && Bit(c, 11);
  caps.avx512_vbmi = caps.avx512 && Bit(c, 1);
  const bool tiles = Bit(d, 24) && (xcr0 & kXcr0Tiles) == kXcr0Tiles && RequestTilePermission();
  caps.amx_bf16 = caps.avx512 && tiles && Bit(d, 22);
  caps.amx_int8 = caps.avx512 && tiles && Bit(d, 25);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return;
  caps.avx_vnni = caps.avx2 && Bit(a, 4);
  caps.avx512_bf16 = caps.avx512 && Bit(a, 5);
}

#elif defined(__aarch64__)

void DetectIsa(CpuCapabilities& caps) {
  const uint64_t hwcap = getauxval(AT_HWCAP);
  const uint64_t hwcap2 = getauxval(AT_HWCAP2);
  caps.asimd_dotprod = Bit(hwcap, kHwcapAsimdDp);
  caps.asimd_i8mm = Bit(hwcap2, kHwcap2I8mm);
  caps.asimd_bf16 = Bit(hwcap2, kHwcap2Bf16);
}

#elif defined(__s390x__)

void DetectIsa(CpuCapabilities& caps) { caps.vxe = Bit(getauxval(AT_HWCAP), kHwcapVxrsExt); }

#else

void DetectIsa(CpuCapabilities&) {}

#endif

}  // namespace pagemill::device
