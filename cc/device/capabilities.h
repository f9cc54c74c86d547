// File: cc/device/capabilities.h
// What the CPU that runs this process can do. Detected once by the host (never by a kernel) and
// passed to the op table; tests pass lesser capabilities to force dispatch on lesser machines.
#ifndef PAGEMILL_CC_DEVICE_CAPABILITIES_H_
#define PAGEMILL_CC_DEVICE_CAPABILITIES_H_

#include <cstdint>
#include <string>

namespace pagemill::device {

struct Capabilities {
  // x86-64
  bool avx2 = false;      // with FMA and F16C
  bool avx_vnni = false;  // VPDPBUSD without AVX-512
  bool avx512 = false;    // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool amx_bf16 = false;  // tile data permitted by the kernel too
  bool amx_int8 = false;
  // aarch64
  bool asimd_dotprod = false;
  bool asimd_bf16 = false;
  bool asimd_i8mm = false;
  // s390x
  bool vxe = false;
  int32_t cores = 1;  // physical cores this process may run on (affinity and cgroup honoured)

  // "avx2 avx512 avx512_vnni", for `doctor` and logs.
  std::string ToString() const;
};

// Detects the machine, OS support of wide registers included. ~50 us.
Capabilities DetectCapabilities();

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_CAPABILITIES_H_
