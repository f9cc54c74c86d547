// File: hip/device/hip_library.h
// AMD's HIP runtime, libamdhip64.so, as ROCm has installed it. It belongs to the driver of a machine,
// so no plugin brings one. It is opened when the plugin is loaded; its absence is an error of the
// functions that are called (hip_functions.cc).
//
//   const HipLibrary& hip = LoadedHipLibrary();
//   if (!hip.missing.empty()) return hip.missing;
//   hip.functions.hipSetDevice(0);
#ifndef PAGEMILL_HIP_DEVICE_HIP_LIBRARY_H_
#define PAGEMILL_HIP_DEVICE_HIP_LIBRARY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <string>

// Those that only Triton kernels need, of ROCm 7.2 and newer: null in older ones.
#define PAGEMILL_HIP_LIBRARY_FUNCTIONS(X)                                                          \
  X(hipError_t, hipLibraryLoadData,                                                                \
    (hipLibrary_t * library, const void* code, hipJitOption** jit_options, void** jit_values,      \
     unsigned num_jit_options, hipLibraryOption** options, void** values, unsigned num_options),   \
    (library, code, jit_options, jit_values, num_jit_options, options, values, num_options))       \
  X(hipError_t, hipLibraryGetKernel,                                                               \
    (hipKernel_t * kernel, hipLibrary_t library, const char* name), (kernel, library, name))       \
  X(hipError_t, hipLibraryUnload, (hipLibrary_t library), (library))

// Each function that this tree's objects call: result, name, parameters, arguments. Those with
// underscores are called by what clang makes of kernels and their launches.
#define PAGEMILL_HIP_FUNCTIONS(X)                                                                  \
  X(void**, __hipRegisterFatBinary, (const void* binary), (binary))                                \
  X(void, __hipRegisterFunction,                                                                   \
    (void** binary, const void* host_function, char* device_function, const char* device_name,     \
     unsigned thread_limit, uint3* thread, uint3* block, dim3* block_size, dim3* grid_size,        \
     int* warp_size),                                                                              \
    (binary, host_function, device_function, device_name, thread_limit, thread, block, block_size, \
     grid_size, warp_size))                                                                        \
  X(void, __hipUnregisterFatBinary, (void** binary), (binary))                                     \
  X(hipError_t, __hipPushCallConfiguration,                                                        \
    (dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream),                              \
    (grid, block, shared_bytes, stream))                                                           \
  X(hipError_t, __hipPopCallConfiguration,                                                         \
    (dim3* grid, dim3* block, size_t* shared_bytes, hipStream_t* stream),                          \
    (grid, block, shared_bytes, stream))                                                           \
  X(hipError_t, hipLaunchKernel,                                                                   \
    (const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,             \
     hipStream_t stream),                                                                          \
    (kernel, grid, block, arguments, shared_bytes, stream))                                        \
  X(hipError_t, hipFuncSetAttribute,                                                               \
    (const void* kernel, hipFuncAttribute attribute, int value), (kernel, attribute, value))       \
  X(hipError_t, hipGetLastError, (), ())                                                           \
  X(hipError_t, hipGetDeviceCount, (int* count), (count))                                          \
  X(hipError_t, hipGetDevicePropertiesR0600, (hipDeviceProp_tR0600 * properties, int device),      \
    (properties, device))                                                                          \
  X(hipError_t, hipSetDevice, (int device), (device))                                              \
  X(hipError_t, hipMemGetInfo, (size_t * free, size_t * total), (free, total))                     \
  X(hipError_t, hipMalloc, (void** address, size_t bytes), (address, bytes))                       \
  X(hipError_t, hipExtMallocWithFlags, (void** address, size_t bytes, unsigned flags),             \
    (address, bytes, flags))                                                                       \
  X(hipError_t, hipFree, (void* address), (address))                                               \
  X(hipError_t, hipDeviceCanAccessPeer, (int* can, int device, int peer), (can, device, peer))     \
  X(hipError_t, hipDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags))              \
  X(hipError_t, hipIpcGetMemHandle, (hipIpcMemHandle_t * handle, void* address),                   \
    (handle, address))                                                                             \
  X(hipError_t, hipIpcOpenMemHandle, (void** address, hipIpcMemHandle_t handle, unsigned flags),   \
    (address, handle, flags))                                                                      \
  X(hipError_t, hipIpcCloseMemHandle, (void* address), (address))                                  \
  X(hipError_t, hipHostAlloc, (void** address, size_t bytes, unsigned flags),                      \
    (address, bytes, flags))                                                                       \
  X(hipError_t, hipFreeHost, (void* address), (address))                                           \
  X(hipError_t, hipMemcpyAsync,                                                                    \
    (void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream),            \
    (to, from, bytes, kind, stream))                                                               \
  X(hipError_t, hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags), (stream, flags)) \
  X(hipError_t, hipStreamDestroy, (hipStream_t stream), (stream))                                  \
  X(hipError_t, hipStreamSynchronize, (hipStream_t stream), (stream))                              \
  X(hipError_t, hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode),            \
    (stream, mode))                                                                                \
  X(hipError_t, hipStreamEndCapture, (hipStream_t stream, hipGraph_t * graph), (stream, graph))    \
  X(hipError_t, hipGraphInstantiateWithFlags,                                                      \
    (hipGraphExec_t * exec, hipGraph_t graph, unsigned long long flags), (exec, graph, flags))     \
  X(hipError_t, hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream), (exec, stream))         \
  X(hipError_t, hipGraphDestroy, (hipGraph_t graph), (graph))                                      \
  X(hipError_t, hipGraphExecDestroy, (hipGraphExec_t exec), (exec))                                \
  X(hipError_t, hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags), (event, flags))     \
  X(hipError_t, hipEventDestroy, (hipEvent_t event), (event))                                      \
  X(hipError_t, hipEventRecord, (hipEvent_t event, hipStream_t stream), (event, stream))           \
  X(hipError_t, hipEventSynchronize, (hipEvent_t event), (event))

namespace pagemill::gpu {

struct HipFunctions {
#define PAGEMILL_HIP_MEMBER(Result, name, parameters, arguments) Result(*name) parameters = nullptr;
  PAGEMILL_HIP_FUNCTIONS(PAGEMILL_HIP_MEMBER)
  PAGEMILL_HIP_LIBRARY_FUNCTIONS(PAGEMILL_HIP_MEMBER)
#undef PAGEMILL_HIP_MEMBER
  const char* (*hipGetErrorString)(hipError_t error) = nullptr;
};

struct HipLibrary {
  std::string missing;     // what to install, in a sentence; empty if the library can be used
  HipFunctions functions;  // all set if it can
};

// Opens the library with the first call and never closes it. Thread-safe.
const HipLibrary& LoadedHipLibrary();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_HIP_DEVICE_HIP_LIBRARY_H_
