// A libamdhip64.so for tests: it has one kind of GPU, keeps "device" memory in the host's, and knows
// which kernels were registered and launched. It executes none.
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace {

// The wrapper that clang passes to __hipRegisterFatBinary.
struct FatBinary {
  uint32_t magic;
  uint32_t version;
  const char* bundle;
};

struct FakeHip {
  int version = 7'01'00000;
  int num_devices = 1;
  std::string architecture = "gfx942";
  std::map<const void*, const FatBinary*> kernels;  // by the function that launches them
  int num_launches = 0;
  hipError_t last_error = hipSuccess;
  dim3 grid, block;  // of the launch that is being made
  size_t shared_bytes = 0;
  hipStream_t stream = nullptr;
};

FakeHip& Fake() {
  static FakeHip& fake = *new FakeHip;
  return fake;
}

uint64_t ReadWord(const char*& at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  at += sizeof(word);
  return word;
}

// Whether a bundle (LLVM, "Clang Offload Bundler") has code for the GPU.
bool HasCode(const FatBinary& binary) {
  constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";
  if (std::string_view(binary.bundle, kMagic.size()) != kMagic) return false;
  const char* at = binary.bundle + kMagic.size();
  for (uint64_t entries = ReadWord(at); entries > 0; --entries) {
    at += 2 * sizeof(uint64_t);  // where the code is, and its size
    const uint64_t size = ReadWord(at);
    if (std::string_view(at, size).ends_with("--" + Fake().architecture)) return true;
    at += size;
  }
  return false;
}

hipError_t Report(hipError_t error) { return Fake().last_error = error; }

template <typename Handle>
hipError_t New(Handle* handle) {
  *handle = reinterpret_cast<Handle>(new int);
  return hipSuccess;
}
hipError_t Delete(void* handle) {
  delete static_cast<int*>(handle);
  return hipSuccess;
}

}  // namespace

extern "C" {

// Before the plugin is loaded. `version` as hipRuntimeGetVersion tells it.
void fake_hip_configure(int version, int num_devices, const char* architecture) {
  Fake().version = version;
  Fake().num_devices = num_devices;
  Fake().architecture = architecture;
}
int fake_hip_num_kernels() { return static_cast<int>(Fake().kernels.size()); }
int fake_hip_num_launches() { return Fake().num_launches; }

void** __hipRegisterFatBinary(const void* binary) {
  return new void* {const_cast<void*>(binary)};
}
void __hipRegisterFunction(void** binary, const void* host_function, char*, const char*, unsigned,
                           uint3*, uint3*, dim3*, dim3*, int*) {
  Fake().kernels[host_function] = static_cast<const FatBinary*>(*binary);
}
void __hipUnregisterFatBinary(void** binary) { delete binary; }

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                      hipStream_t stream) {
  Fake().grid = grid;
  Fake().block = block;
  Fake().shared_bytes = shared_bytes;
  Fake().stream = stream;
  return hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                     hipStream_t* stream) {
  *grid = Fake().grid;
  *block = Fake().block;
  *shared_bytes = Fake().shared_bytes;
  *stream = Fake().stream;
  return hipSuccess;
}
hipError_t hipLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, hipStream_t) {
  const auto found = Fake().kernels.find(kernel);
  if (found == Fake().kernels.end() || !HasCode(*found->second)) {
    return Report(hipErrorInvalidDeviceFunction);
  }
  ++Fake().num_launches;
  return hipSuccess;
}
hipError_t hipLibraryLoadData(hipLibrary_t*, const void*, hipJitOption**, void**, unsigned,
                              hipLibraryOption**, void**, unsigned) {
  return Report(hipErrorNotSupported);
}
hipError_t hipLibraryGetKernel(hipKernel_t*, hipLibrary_t, const char*) {
  return Report(hipErrorNotSupported);
}
hipError_t hipLibraryUnload(hipLibrary_t) { return Report(hipErrorNotSupported); }
hipError_t hipFuncSetAttribute(const void*, hipFuncAttribute, int) { return hipSuccess; }

const char* hipGetErrorString(hipError_t error) {
  if (error == hipErrorNoDevice) return "no ROCm-capable device is detected";
  return error == hipErrorInvalidDeviceFunction ? "invalid device function" : "another error";
}
hipError_t hipGetLastError() {
  const hipError_t error = Fake().last_error;
  Fake().last_error = hipSuccess;
  return error;
}
hipError_t hipRuntimeGetVersion(int* version) {
  *version = Fake().version;
  return hipSuccess;
}
hipError_t hipGetDeviceCount(int* count) {
  *count = Fake().num_devices;
  return *count > 0 ? hipSuccess : Report(hipErrorNoDevice);
}
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "fake GPU");
  std::strcpy(properties->gcnArchName, (Fake().architecture + ":sramecc+:xnack-").c_str());
  properties->major = 9;
  properties->warpSize = 64;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = size_t{1} << 30;
  properties->sharedMemPerBlock = size_t{64} << 10;
  return hipSuccess;
}
hipError_t hipSetDevice(int) { return hipSuccess; }
hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return hipSuccess;
}
hipError_t hipMalloc(void** address, size_t bytes) {
  *address = std::malloc(bytes);
  return hipSuccess;
}
hipError_t hipFree(void* address) {
  std::free(address);
  return hipSuccess;
}
hipError_t hipExtMallocWithFlags(void** address, size_t bytes, unsigned) {
  return hipMalloc(address, bytes);
}
// One process has it to itself: there are no peers.
hipError_t hipDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return hipSuccess;
}
hipError_t hipDeviceEnablePeerAccess(int, unsigned) { return Report(hipErrorInvalidDevice); }
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t*, void*) { return Report(hipErrorNotSupported); }
hipError_t hipIpcOpenMemHandle(void**, hipIpcMemHandle_t, unsigned) {
  return Report(hipErrorNotSupported);
}
hipError_t hipIpcCloseMemHandle(void*) { return Report(hipErrorNotSupported); }
hipError_t hipHostAlloc(void** address, size_t bytes, unsigned) { return hipMalloc(address, bytes); }
hipError_t hipFreeHost(void* address) { return hipFree(address); }
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t) {
  std::memcpy(to, from, bytes);
  return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) { return New(stream); }
hipError_t hipStreamDestroy(hipStream_t stream) { return Delete(stream); }
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
hipError_t hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode) { return hipSuccess; }
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t* graph) { return New(graph); }
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* exec, hipGraph_t, unsigned long long) {
  return New(exec);
}
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t) { return hipSuccess; }
hipError_t hipGraphDestroy(hipGraph_t graph) { return Delete(graph); }
hipError_t hipGraphExecDestroy(hipGraphExec_t exec) { return Delete(exec); }
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) { return New(event); }
hipError_t hipEventDestroy(hipEvent_t event) { return Delete(event); }
hipError_t hipEventRecord(hipEvent_t, hipStream_t) { return hipSuccess; }
hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }

}  // extern "C"
