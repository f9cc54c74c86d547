// The functions of HIP's runtime that objects of this tree call, for a plugin to link in place of
// the runtime: they forward to the library of the machine, or report that there is none.
#include <unistd.h>

#include <string>
#include <type_traits>

#include "hip/device/hip_library.h"

namespace pagemill::gpu {
namespace {

constexpr hipError_t kNoLibrary = hipErrorSharedObjectInitFailed;

// Kernels are registered without a library, too: as no binary.
template <typename Result>
Result WithoutLibrary() {
  if constexpr (std::is_same_v<Result, hipError_t>) {
    return kNoLibrary;
  } else {
    return Result();
  }
}

// What lies between this process and the devices of the driver; empty if nothing does.
std::string WhyNoDevice() {
  constexpr char kDriver[] = "/dev/kfd";
  if (access(kDriver, F_OK) != 0) {
    return "the amdgpu driver is not loaded, for there is no " + std::string(kDriver) +
           "; install it, or pass --device=/dev/kfd --device=/dev/dri to the container";
  }
  if (access(kDriver, R_OK | W_OK) != 0) {
    return "this user may not open " + std::string(kDriver) +
           "; add it to the groups render and video";
  }
  return "";
}

}  // namespace
}  // namespace pagemill::gpu

#define PAGEMILL_HIP_FORWARD(Result, name, parameters, arguments)                          \
  extern "C" Result name parameters {                                                      \
    const pagemill::gpu::HipLibrary& hip = pagemill::gpu::LoadedHipLibrary();              \
    if (!hip.missing.empty()) return pagemill::gpu::WithoutLibrary<Result>();              \
    return hip.functions.name arguments;                                                   \
  }
PAGEMILL_HIP_FUNCTIONS(PAGEMILL_HIP_FORWARD)
#undef PAGEMILL_HIP_FORWARD

#define PAGEMILL_HIP_FORWARD(Result, name, parameters, arguments)                          \
  extern "C" Result name parameters {                                                      \
    const pagemill::gpu::HipLibrary& hip = pagemill::gpu::LoadedHipLibrary();              \
    if (!hip.missing.empty()) return pagemill::gpu::WithoutLibrary<Result>();              \
    if (hip.functions.name == nullptr) return hipErrorNotSupported;                        \
    return hip.functions.name arguments;                                                   \
  }
PAGEMILL_HIP_LIBRARY_FUNCTIONS(PAGEMILL_HIP_FORWARD)
#undef PAGEMILL_HIP_FORWARD

extern "C" const char* hipGetErrorString(hipError_t error) {
  const pagemill::gpu::HipLibrary& hip = pagemill::gpu::LoadedHipLibrary();
  if (!hip.missing.empty()) return hip.missing.c_str();
  static const std::string& why_no_device = *new std::string(pagemill::gpu::WhyNoDevice());
  if (error == hipErrorNoDevice && !why_no_device.empty()) return why_no_device.c_str();
  return hip.functions.hipGetErrorString(error);
}
