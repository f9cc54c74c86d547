#include "cuda/device/gpu_list.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "cc/device/stream.h"
#include "cuda/device/cublas_lt.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_runtime.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {
namespace {

// Has code wherever the kernels of ops have: all are compiled for the same architectures.
PAGEMILL_KERNEL Probe() {}

#if defined(__HIP__)

// Of hip.bzl: "gfx942", "gfx1100", ...
constexpr std::string_view kArchitectures[] = {PAGEMILL_HIP_ARCHITECTURES};

std::string ArchitectureName(std::string_view name) { return std::string(name); }

// Without the state of features, as in "gfx90a:sramecc+:xnack-": code is compiled for every state.
std::string ArchitectureOf(const PAGEMILL_GPU(DeviceProp) & properties) {
  const std::string_view name = properties.gcnArchName;
  return std::string(name.substr(0, name.find(':')));
}

// The texts of errors say what to do (hip/device/hip_functions.cc).
constexpr char kAdvice[] = "";

#else

#if defined(__CUDA_ARCH_LIST__)
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
#else
constexpr int kArchitectures[] = {900};
#endif

std::string ArchitectureName(int version) { return "sm_" + std::to_string(version / 10); }

std::string ArchitectureOf(const PAGEMILL_GPU(DeviceProp) & properties) {
  return ArchitectureName(properties.major * 100 + properties.minor * 10);
}

constexpr char kAdvice[] = "; is the vendor's driver installed, and new enough?";

#endif

std::string CompiledFor() {
  std::string names;
  for (const auto architecture : kArchitectures) {
    names += (names.empty() ? "" : ", ") + ArchitectureName(architecture);
  }
  return names;
}

StatusOr<FoundGpu> Describe(int32_t index) {
  PAGEMILL_GPU(DeviceProp) properties;
  PAGEMILL_RETURN_IF_ERROR(ToStatus(PAGEMILL_GPU(GetDeviceProperties)(&properties, index),
                                    "to tell its capabilities"));
  return FoundGpu{.name = properties.name,
                  .architecture = ArchitectureOf(properties),
                  .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
}

}  // namespace

StatusOr<std::vector<FoundGpu>> FindGpus() {
  int count = 0;
  if (const auto error = PAGEMILL_GPU(GetDeviceCount)(&count); error != PAGEMILL_GPU(Success)) {
    (void)PAGEMILL_GPU(GetLastError)();
    return FailedPrecondition(std::string("no GPU can be used: ") +
                              PAGEMILL_GPU(GetErrorString)(error) + kAdvice);
  }
  if (count == 0) return FailedPrecondition("the driver has found no GPU");
  std::vector<FoundGpu> found;
  for (int32_t index = 0; index < count; ++index) {
    PAGEMILL_ASSIGN_OR_RETURN(FoundGpu gpu, Describe(index));
    found.push_back(std::move(gpu));
  }
  return found;
}

Status CheckRunsKernels(GpuDevice& gpu, const FoundGpu& described) {
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, gpu.NewStream());
  const std::unique_ptr<device::Event> done = gpu.NewEvent();
  Launch(*stream, {.blocks = {1}, .threads = {1}}, Probe);
  stream->Record(*done);
  const Status status = done->Synchronize();
  if (status.ok()) return OkStatus();
  return FailedPrecondition(described.name + " (" + described.architecture +
                            ") does not run kernels that are compiled for " + CompiledFor() + ": " +
                            status.message());
}

std::vector<std::string> GpuAdvice() {
#if defined(__HIP__)
  return {};
#else
  const StatusOr<CublasLtLibrary> library = CublasLtLibrary::Open();
  if (!library.ok()) {
    return {"prompts are slower without cuBLASLt: " + library.status().message()};
  }
  const StatusOr<std::vector<FoundGpu>> found = FindGpus();
  if (found.ok() && !library->HasScales(9, 0) &&
      std::ranges::any_of(*found, [](const FoundGpu& gpu) { return gpu.architecture == "sm_90"; })) {
    return {"fp8 models are slower with this version of cuBLASLt: 12.9 or newer multiplies them "
            "in fp8 (pip install --upgrade nvidia-cublas)"};
  }
  return {};
#endif
}

}  // namespace pagemill::gpu
