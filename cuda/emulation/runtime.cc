#include "cuda/emulation/runtime.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cc/base/status.h"

namespace pagemill::gpu::emulation {

struct EmulatedStream {
  std::unique_ptr<device::Stream> stream;
};
struct EmulatedEvent {
  std::unique_ptr<device::Event> event;
};
// A captured graph; what is instantiated shares its work.
struct EmulatedGraph {
  std::shared_ptr<device::Graph> graph;
};

namespace {

std::atomic<int> warp_lanes = 32;
std::atomic<bool> gpu_is_of_amd = false;
std::atomic<bool> sums_in_turn = false;
std::atomic<uint64_t> seed = 1;
std::atomic<bool> has_peer_access = true;
std::atomic<bool> nccl_is_installed = true;
std::atomic<bool> cublas_lt_is_installed = false;

std::mutex allocating;
struct Allocation {
  device::DeviceMemory memory;
  size_t device;
  int fd = -1;  // once it is shared
};
std::map<void*, Allocation>& Allocations() {
  static auto& allocations = *new std::map<void*, Allocation>;
  return allocations;
}
std::array<size_t, EmulatedGpu::kDevices> allocated_bytes = {};  // guarded by `allocating`
// Memory of other processes, with the bytes of each mapping. Guarded by `allocating`.
std::map<void*, std::pair<void*, size_t>>& Mappings() {
  static auto& mappings = *new std::map<void*, std::pair<void*, size_t>>;
  return mappings;
}
thread_local size_t current_device = 0;
std::map<void*, device::HostMemory>& HostAllocations() {
  static auto& allocations = *new std::map<void*, device::HostMemory>;
  return allocations;
}

// Streams that live as long as the program report after its variables are gone: never freed.
std::string& LastMessage() {
  static thread_local auto& message = *new std::string;
  return message;
}

emulatedError_t Report(emulatedError_t error, std::string message) {
  LastMessage() = std::move(message);
  return error;
}

emulatedError_t Report(const Status& status) {
  if (status.ok()) return emulatedSuccess;
  return Report(emulatedErrorLaunchFailure, std::string(status.message()));
}

Status CheckPointers(const device::testing::TestWorker& worker,
                     const std::vector<const void*>& pointers) {
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (pointers[i] == nullptr || worker.Find(pointers[i], 1) != nullptr) continue;
    return Internal("pointer " + std::to_string(i) +
                    " of a kernel is not an address in the GPU's memory");
  }
  return OkStatus();
}

}  // namespace

void EmulatedGpu::Configure(const EmulatedGpuOptions& options) {
  emulation::warp_lanes = options.warp_lanes;
  gpu_is_of_amd = options.is_of_amd || options.warp_lanes == 64;
  emulation::sums_in_turn = options.sums_in_turn;
  seed = options.seed << 20;
  emulation::has_peer_access = options.has_peer_access;
  nccl_is_installed = options.has_nccl;
  cublas_lt_is_installed = options.has_cublas_lt;
}

int EmulatedGpu::warp_lanes() { return emulation::warp_lanes; }
bool EmulatedGpu::is_of_amd() { return gpu_is_of_amd; }
bool EmulatedGpu::has_nccl() { return nccl_is_installed; }
bool EmulatedGpu::has_cublas_lt() { return cublas_lt_is_installed; }

device::testing::TestDevice& EmulatedGpu::memory() {
  static auto& device = *new device::testing::TestDevice(kDevices * kMemoryBytes);
  return device;
}

void EnqueueWork(EmulatedStream* stream, device::testing::TestWork work) {
  static_cast<device::testing::TestStream&>(*stream->stream).Enqueue(std::move(work));
}

void EnqueueLaunch(EmulatedStream* stream, const LaunchOptions& options,
                   std::vector<const void*> pointers, std::function<void()> thread) {
  LaunchOptions launch = options;
  launch.warp_lanes = warp_lanes;
  launch.is_of_amd = gpu_is_of_amd;
  launch.sums_in_turn = sums_in_turn;
  launch.seed = ++seed;
  EnqueueWork(stream, [launch, pointers = std::move(pointers),
                       thread = std::move(thread)](device::testing::TestWorker& worker) {
    PAGEMILL_RETURN_IF_ERROR(CheckPointers(worker, pointers));
    return Launch(launch, thread);
  });
}

}  // namespace pagemill::gpu::emulation

using pagemill::Status;
using pagemill::StatusOr;
using pagemill::gpu::emulation::Allocation;
using pagemill::gpu::emulation::Allocations;
using pagemill::gpu::emulation::allocated_bytes;
using pagemill::gpu::emulation::allocating;
using pagemill::gpu::emulation::EmulatedCode;
using pagemill::gpu::emulation::current_device;
using pagemill::gpu::emulation::EmulatedEvent;
using pagemill::gpu::emulation::EmulatedGpu;
using pagemill::gpu::emulation::EmulatedGraph;
using pagemill::gpu::emulation::EmulatedStream;
using pagemill::gpu::emulation::HostAllocations;
using pagemill::gpu::emulation::LastMessage;
using pagemill::gpu::emulation::Mappings;
using pagemill::gpu::emulation::Report;

const char* emulatedGetErrorString(emulatedError_t) { return LastMessage().c_str(); }

// Launches fail when they execute.
emulatedError_t emulatedGetLastError() { return emulatedSuccess; }

emulatedError_t emulatedGetDeviceCount(int* count) {
  *count = EmulatedGpu::kDevices;
  return emulatedSuccess;
}

emulatedError_t emulatedGetDeviceProperties(emulatedDeviceProp* properties, int device) {
  if (device < 0 || device >= EmulatedGpu::kDevices) {
    return Report(emulatedErrorInvalidValue, "there is no such emulated GPU");
  }
  const bool is_of_gfx12 = EmulatedGpu::is_of_amd() && EmulatedGpu::warp_lanes() == 32;
  *properties = {.name = "emulated GPU",
                 .major = is_of_gfx12 ? 12 : 9,
                 .minor = EmulatedGpu::warp_lanes() == 64 ? 4 : 0,
                 .multiProcessorCount = 4,
                 .warpSize = EmulatedGpu::warp_lanes(),
                 .totalGlobalMem = EmulatedGpu::kMemoryBytes,
                 .sharedMemPerBlock = size_t{48} << 10,
                 .sharedMemPerBlockOptin = size_t{227} << 10};
  return emulatedSuccess;
}

emulatedError_t emulatedSetDevice(int device) {
  if (device < 0 || device >= EmulatedGpu::kDevices) {
    return Report(emulatedErrorInvalidValue, "there is no such emulated GPU");
  }
  current_device = static_cast<size_t>(device);
  return emulatedSuccess;
}

emulatedError_t emulatedMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard lock(allocating);
  *total = EmulatedGpu::kMemoryBytes;
  *free = *total - allocated_bytes[current_device];
  return emulatedSuccess;
}

emulatedError_t emulatedMalloc(void** address, size_t bytes) {
  std::lock_guard lock(allocating);
  if (bytes > EmulatedGpu::kMemoryBytes - allocated_bytes[current_device]) {
    return Report(emulatedErrorMemoryAllocation, "out of memory");
  }
  auto memory = EmulatedGpu::memory().Allocate(static_cast<int64_t>(bytes), "the emulated GPU");
  if (!memory.ok()) return Report(emulatedErrorMemoryAllocation, memory.status().ToString());
  *address = memory->data();
  allocated_bytes[current_device] += bytes;
  Allocations().emplace(*address, Allocation{*std::move(memory), current_device});
  return emulatedSuccess;
}

emulatedError_t emulatedFree(void* address) {
  std::lock_guard lock(allocating);
  const auto found = Allocations().find(address);
  if (found == Allocations().end()) {
    return Report(emulatedErrorInvalidValue, "memory is freed that was not allocated");
  }
  allocated_bytes[found->second.device] -= found->second.memory.bytes().size();
  if (found->second.fd >= 0) close(found->second.fd);
  Allocations().erase(found);
  return emulatedSuccess;
}

emulatedError_t emulatedDeviceCanAccessPeer(int* can, int, int) {
  *can = pagemill::gpu::emulation::has_peer_access ? 1 : 0;
  return emulatedSuccess;
}

emulatedError_t emulatedDeviceEnablePeerAccess(int, unsigned) { return emulatedSuccess; }

emulatedError_t emulatedIpcGetMemHandle(emulatedIpcMemHandle_t* handle, void* address) {
  std::lock_guard lock(allocating);
  const auto found = Allocations().find(address);
  if (found == Allocations().end()) {
    return Report(emulatedErrorInvalidValue, "shared memory was not allocated");
  }
  size_t offset = 0;
  const auto fd = EmulatedGpu::memory().Share(static_cast<std::byte*>(address), &offset);
  if (!fd.ok()) return Report(fd.status());
  found->second.fd = *fd;
  *handle = {.process_id = getpid(),
             .fd = *fd,
             .offset = offset,
             .bytes = found->second.memory.bytes().size()};
  return emulatedSuccess;
}

emulatedError_t emulatedIpcOpenMemHandle(void** address, emulatedIpcMemHandle_t handle, unsigned) {
  if (handle.process_id == getpid()) {
    return Report(emulatedErrorInvalidValue, "memory is opened by the process that shares it");
  }
  const std::string path =
      "/proc/" + std::to_string(handle.process_id) + "/fd/" + std::to_string(handle.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return Report(emulatedErrorInvalidValue, path + " cannot be opened");
  const size_t bytes = handle.offset + handle.bytes;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return Report(emulatedErrorInvalidValue, path + " cannot be mapped");
  *address = static_cast<std::byte*>(mapped) + handle.offset;
  std::lock_guard lock(allocating);
  Mappings().emplace(*address, std::pair(mapped, bytes));
  return emulatedSuccess;
}

emulatedError_t emulatedIpcCloseMemHandle(void* address) {
  std::lock_guard lock(allocating);
  const auto found = Mappings().find(address);
  if (found == Mappings().end()) {
    return Report(emulatedErrorInvalidValue, "memory is closed that was not opened");
  }
  munmap(found->second.first, found->second.second);
  Mappings().erase(found);
  return emulatedSuccess;
}

emulatedError_t emulatedHostAlloc(void** address, size_t bytes, unsigned flags) {
  pagemill::device::Device& device = EmulatedGpu::memory();
  const auto size = static_cast<int64_t>(bytes);
  auto memory = flags == emulatedHostAllocMapped ? device.AllocateMapped(size, "the host")
                                                 : device.AllocateHost(size, "the host");
  if (!memory.ok()) return Report(emulatedErrorMemoryAllocation, memory.status().ToString());
  *address = memory->data();
  std::lock_guard lock(allocating);
  HostAllocations().emplace(*address, *std::move(memory));
  return emulatedSuccess;
}

emulatedError_t emulatedFreeHost(void* address) {
  std::lock_guard lock(allocating);
  if (HostAllocations().erase(address) == 1) return emulatedSuccess;
  return Report(emulatedErrorInvalidValue, "host memory is freed that was not allocated");
}

emulatedError_t emulatedStreamCreateWithFlags(emulatedStream_t* stream, unsigned) {
  *stream = new EmulatedStream{*EmulatedGpu::memory().NewStream()};
  return emulatedSuccess;
}

emulatedError_t emulatedStreamDestroy(emulatedStream_t stream) {
  delete stream;
  return emulatedSuccess;
}

emulatedError_t emulatedStreamSynchronize(emulatedStream_t stream) {
  const std::unique_ptr<pagemill::device::Event> done = EmulatedGpu::memory().NewEvent();
  stream->stream->Record(*done);
  return Report(done->Synchronize());
}

emulatedError_t emulatedMemcpyAsync(void* to, const void* from, size_t bytes,
                                    emulatedMemcpyKind kind, emulatedStream_t stream) {
  if (kind == emulatedMemcpyHostToDevice) {
    stream->stream->CopyToDevice(static_cast<std::byte*>(to),
                                 {static_cast<const std::byte*>(from), bytes});
  } else {
    stream->stream->CopyToHost({static_cast<std::byte*>(to), bytes},
                               static_cast<const std::byte*>(from));
  }
  return emulatedSuccess;
}

emulatedError_t emulatedEventCreateWithFlags(emulatedEvent_t* event, unsigned) {
  *event = new EmulatedEvent{EmulatedGpu::memory().NewEvent()};
  return emulatedSuccess;
}

emulatedError_t emulatedEventDestroy(emulatedEvent_t event) {
  delete event;
  return emulatedSuccess;
}

emulatedError_t emulatedEventRecord(emulatedEvent_t event, emulatedStream_t stream) {
  stream->stream->Record(*event->event);
  return emulatedSuccess;
}

emulatedError_t emulatedEventSynchronize(emulatedEvent_t event) {
  return Report(event->event->Synchronize());
}

emulatedError_t emulatedStreamBeginCapture(emulatedStream_t stream, emulatedStreamCaptureMode) {
  stream->stream->BeginCapture();
  return emulatedSuccess;
}

emulatedError_t emulatedStreamEndCapture(emulatedStream_t stream, emulatedGraph_t* graph) {
  StatusOr<std::unique_ptr<pagemill::device::Graph>> captured = stream->stream->EndCapture();
  if (!captured.ok()) return Report(captured.status());
  *graph = new EmulatedGraph{*std::move(captured)};
  return emulatedSuccess;
}

emulatedError_t emulatedGraphInstantiateWithFlags(emulatedGraphExec_t* exec, emulatedGraph_t graph,
                                         unsigned long long) {
  *exec = new EmulatedGraph{graph->graph};
  return emulatedSuccess;
}

emulatedError_t emulatedGraphLaunch(emulatedGraphExec_t exec, emulatedStream_t stream) {
  stream->stream->Replay(*exec->graph);
  return emulatedSuccess;
}

emulatedError_t emulatedGraphDestroy(emulatedGraph_t graph) {
  delete graph;
  return emulatedSuccess;
}

emulatedError_t emulatedGraphExecDestroy(emulatedGraphExec_t exec) {
  delete exec;
  return emulatedSuccess;
}

emulatedError_t emulatedLibraryLoadData(emulatedLibrary_t* library, const void* code, void*, void**,
                                        unsigned, void*, void**, unsigned) {
  *library = static_cast<const EmulatedCode*>(code);
  return emulatedSuccess;
}

emulatedError_t emulatedLibraryGetKernel(emulatedKernel_t* kernel, emulatedLibrary_t library,
                                         const char* name) {
  if (library->kernel != name) {
    return Report(emulatedErrorInvalidValue, std::string("there is no kernel ") + name);
  }
  *kernel = library;
  return emulatedSuccess;
}

emulatedError_t emulatedLibraryUnload(emulatedLibrary_t) { return emulatedSuccess; }

emulatedError_t emulatedLaunchKernel(const void* kernel, pagemill::gpu::emulation::Dim grid,
                                     pagemill::gpu::emulation::Dim block, void** arguments,
                                     size_t shared_bytes, emulatedStream_t stream) {
  const auto* const code = static_cast<const EmulatedCode*>(kernel);
  static_cast<pagemill::device::testing::TestStream&>(*stream->stream)
      .Enqueue([work = code->launch({.grid = grid,
                                     .block = block,
                                     .shared_bytes = static_cast<int64_t>(shared_bytes)},
                                    arguments)](pagemill::device::testing::TestWorker&) {
        work();
        return pagemill::OkStatus();
      });
  return emulatedSuccess;
}
