// File: cc/device/capabilities.h
// The capabilities of a device: the CPU that runs this process, or a GPU. Detected once by the host
// (never by a kernel) and passed to the op table; tests pass fewer capabilities to test dispatch
// for other machines.
//
//   const Capabilities caps = DetectCapabilities();
//   if (caps.cpu.avx2) ...
//
// Kernels of a vendor tree check `gpu`, which that tree fills in when it opens a device; CPU
// kernels check `cpu`.
#ifndef PAGEMILL_CC_DEVICE_CAPABILITIES_H_
#define PAGEMILL_CC_DEVICE_CAPABILITIES_H_

#include <cstdint>
#include <string>

namespace pagemill::device {

enum class DeviceKind : uint8_t { kCpu, kGpu };

struct CpuCapabilities {
  // x86-64
  bool avx2 = false;      // with FMA and F16C
  bool avx_vnni = false;  // VPDPBUSD without AVX-512
  bool avx512 = false;    // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool amx_bf16 = false;  // and the kernel permits tile data
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

struct GpuCapabilities {
  std::string name;  // "NVIDIA H200"
  // Compute capability that kernels are compiled for: 9 and 0 for sm_90.
  int32_t compute_major = 0;
  int32_t compute_minor = 0;
  int32_t multiprocessors = 0;
  int32_t warp_lanes = 32;  // 64 on some AMD GPUs
  int64_t memory_bytes = 0;
  int64_t shared_memory_per_block_bytes = 0;  // maximum that one block may opt in to
};

struct Capabilities {
  DeviceKind kind = DeviceKind::kCpu;
  CpuCapabilities cpu = {};  // of the host, for every kind
  GpuCapabilities gpu = {};  // if the kind is kGpu
};

// Detects the machine, including OS support for wide registers. ~50 us.
Capabilities DetectCapabilities();

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_CAPABILITIES_H_
