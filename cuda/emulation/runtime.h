// File: cuda/emulation/runtime.h
// A GPU's runtime library for tests: the functions that cuda/gpu_runtime.h names, over the test
// device (cc/device/testing), whose streams run kernels of the emulation. So code of this tree is
// tested whole: its kernels, what it copies when, and the graphs that it records.
//
//   EmulatedGpu::Configure({.warp_lanes = 64, .seed = 3});  // of the launches that follow
//   ... code that uses PAGEMILL_GPU(...) ...
//   EmulatedGpu::memory().num_replays();
//
// Unlike the libraries that it stands for, it knows which memory is the device's: a kernel whose
// pointers are not, nor those of HostAlloc with HostAllocMapped, also when a graph is replayed, is
// an error, as is a kernel that breaks a rule (launch.h). EmulatedGpu::memory() counts copies of
// host memory that is not from HostAlloc. There are kDevices GPUs of kMemoryBytes, which by default
// access each other's memory, also that of other processes. Functions are thread-safe; a stream is
// used by one thread.
#ifndef PAGEMILL_CUDA_EMULATION_RUNTIME_H_
#define PAGEMILL_CUDA_EMULATION_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cuda/emulation/launch.h"

namespace pagemill::gpu::emulation {

struct EmulatedGpuOptions {
  int warp_lanes = 32;  // 64 are of AMD
  uint64_t seed = 1;  // each launch has a seed of its own, which follows from this one
  bool is_of_amd = false;  // it tells the instruction set of gfx1201, or with 64 lanes of gfx942
  bool sums_in_turn = false;  // as LaunchOptions has it
  bool has_peer_access = true;  // within a process
  bool has_nccl = true;         // nccl.h
  bool has_cublas_lt = false;   // cublas_lt.h
};

class EmulatedGpu {
 public:
  static constexpr int kDevices = 2;
  static constexpr int64_t kMemoryBytes = device::testing::TestDevice::kMemoryBytes;  // of each

  static void Configure(const EmulatedGpuOptions& options);
  static int warp_lanes();
  static bool is_of_amd();
  static bool has_nccl();
  static bool has_cublas_lt();
  static device::testing::TestDevice& memory();  // of all
};

struct EmulatedStream;
struct EmulatedEvent;
struct EmulatedGraph;

// Stands for machine code, which the emulation cannot run: what a test passes to LibraryLoadData in
// place of a file of a compiler.
struct EmulatedCode {
  std::string_view kernel;  // its name
  // Called by LaunchKernel: reads the arguments, and returns the work of the whole grid, which is
  // done in the stream's order.
  std::function<void()> (*launch)(const LaunchOptions& shape, void* const* arguments);
};

// Launches a kernel whose threads run `thread` and whose pointers to device memory are `pointers`.
// `options` has no seed and no lanes.
void EnqueueLaunch(EmulatedStream* stream, const LaunchOptions& options,
                   std::vector<const void*> pointers, std::function<void()> thread);

// Enqueues other work than a launch.
void EnqueueWork(EmulatedStream* stream, device::testing::TestWork work);

}  // namespace pagemill::gpu::emulation

using emulatedError_t = int;
using emulatedStream_t = pagemill::gpu::emulation::EmulatedStream*;
using emulatedEvent_t = pagemill::gpu::emulation::EmulatedEvent*;
using emulatedGraph_t = pagemill::gpu::emulation::EmulatedGraph*;
using emulatedGraphExec_t = pagemill::gpu::emulation::EmulatedGraph*;
using emulatedLibrary_t = const pagemill::gpu::emulation::EmulatedCode*;
using emulatedKernel_t = const pagemill::gpu::emulation::EmulatedCode*;

inline constexpr emulatedError_t emulatedSuccess = 0;
inline constexpr emulatedError_t emulatedErrorMemoryAllocation = 2;
inline constexpr emulatedError_t emulatedErrorInvalidValue = 1;
inline constexpr emulatedError_t emulatedErrorPeerAccessAlreadyEnabled = 704;
inline constexpr emulatedError_t emulatedErrorLaunchFailure = 719;
inline constexpr unsigned emulatedStreamNonBlocking = 1;
inline constexpr unsigned emulatedEventDisableTiming = 2;
inline constexpr unsigned emulatedHostAllocDefault = 0;
inline constexpr unsigned emulatedHostAllocMapped = 2;
inline constexpr unsigned emulatedIpcMemLazyEnablePeerAccess = 1;
enum emulatedMemcpyKind { emulatedMemcpyHostToDevice = 1, emulatedMemcpyDeviceToHost = 2 };
enum emulatedStreamCaptureMode { emulatedStreamCaptureModeThreadLocal = 1 };

struct emulatedDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount, warpSize;
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
};

// Valid as long as the memory. A process makes one for each allocation.
struct emulatedIpcMemHandle_t {
  int process_id;
  int fd;
  size_t offset, bytes;
};

// The text of the error that a function of this thread returned last.
const char* emulatedGetErrorString(emulatedError_t error);
emulatedError_t emulatedGetLastError();  // that of a launch; and forgets it
emulatedError_t emulatedGetDeviceCount(int* count);
emulatedError_t emulatedGetDeviceProperties(emulatedDeviceProp* properties, int device);
emulatedError_t emulatedSetDevice(int device);
emulatedError_t emulatedMemGetInfo(size_t* free, size_t* total);
emulatedError_t emulatedMalloc(void** address, size_t bytes);
emulatedError_t emulatedFree(void* address);
emulatedError_t emulatedDeviceCanAccessPeer(int* can, int device, int peer);
emulatedError_t emulatedDeviceEnablePeerAccess(int peer, unsigned flags);
emulatedError_t emulatedIpcGetMemHandle(emulatedIpcMemHandle_t* handle, void* address);
// kInvalidValue in the process that made the handle, as CUDA does.
emulatedError_t emulatedIpcOpenMemHandle(void** address, emulatedIpcMemHandle_t handle,
                                         unsigned flags);
emulatedError_t emulatedIpcCloseMemHandle(void* address);
emulatedError_t emulatedHostAlloc(void** address, size_t bytes, unsigned flags);
emulatedError_t emulatedFreeHost(void* address);
emulatedError_t emulatedStreamCreateWithFlags(emulatedStream_t* stream, unsigned flags);
emulatedError_t emulatedStreamDestroy(emulatedStream_t stream);
emulatedError_t emulatedStreamSynchronize(emulatedStream_t stream);
emulatedError_t emulatedMemcpyAsync(void* to, const void* from, size_t bytes,
                                    emulatedMemcpyKind kind, emulatedStream_t stream);
emulatedError_t emulatedEventCreateWithFlags(emulatedEvent_t* event, unsigned flags);
emulatedError_t emulatedEventDestroy(emulatedEvent_t event);
emulatedError_t emulatedEventRecord(emulatedEvent_t event, emulatedStream_t stream);
emulatedError_t emulatedEventSynchronize(emulatedEvent_t event);
emulatedError_t emulatedStreamBeginCapture(emulatedStream_t stream, emulatedStreamCaptureMode mode);
emulatedError_t emulatedStreamEndCapture(emulatedStream_t stream, emulatedGraph_t* graph);
emulatedError_t emulatedGraphInstantiateWithFlags(emulatedGraphExec_t* exec, emulatedGraph_t graph,
                                         unsigned long long flags);
emulatedError_t emulatedGraphLaunch(emulatedGraphExec_t exec, emulatedStream_t stream);
emulatedError_t emulatedGraphDestroy(emulatedGraph_t graph);
emulatedError_t emulatedGraphExecDestroy(emulatedGraphExec_t exec);
// Options of the compiler and of the library are not emulated: null, and 0 of them.
emulatedError_t emulatedLibraryLoadData(emulatedLibrary_t* library, const void* code, void*, void**,
                                        unsigned, void*, void**, unsigned);
emulatedError_t emulatedLibraryGetKernel(emulatedKernel_t* kernel, emulatedLibrary_t library,
                                         const char* name);
emulatedError_t emulatedLibraryUnload(emulatedLibrary_t library);
emulatedError_t emulatedLaunchKernel(const void* kernel, pagemill::gpu::emulation::Dim grid,
                                     pagemill::gpu::emulation::Dim block, void** arguments,
                                     size_t shared_bytes, emulatedStream_t stream);

#endif  // PAGEMILL_CUDA_EMULATION_RUNTIME_H_
