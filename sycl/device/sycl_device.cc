#include "sycl/device/sycl_device.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <sycl/sycl.hpp>
#include <utility>
#include <vector>

#include "sycl/device/internal/kernel_cache.h"
#include "sycl/device/internal/queue_stream.h"
#include "sycl/device/internal/status.h"
#include "sycl/device/sycl_stream.h"

namespace pagemill::sycl {
namespace {

namespace experimental = ::sycl::ext::oneapi::experimental;

constexpr size_t kAlignment = 256;  // bytes

// Memory that `allocate` returns for a number of bytes, or a refusal that begins with `refusal`.
template <typename Allocate>
StatusOr<std::span<std::byte>> AllocateUsm(int64_t bytes, const char* refusal, const char* purpose,
                                           const Allocate& allocate) {
  void* memory = nullptr;
  const Status status =
      Guarded([&] { memory = allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1))); });
  if (status.ok() && memory != nullptr) {
    return std::span(static_cast<std::byte*>(memory), static_cast<size_t>(bytes));
  }
  return ResourceExhausted(refusal + std::to_string(bytes) + " bytes of " + purpose +
                           (status.ok() ? std::string() : ": " + status.message()));
}

constexpr uint32_t kIntel = 0x8086;  // as in PCI

// A GPU with drivers of both backends is listed once, by the first of them.
std::vector<::sycl::device> ListGpus() {
  const auto all = ::sycl::device::get_devices(::sycl::info::device_type::gpu);
  std::vector<::sycl::device> gpus;
  for (const auto backend : {::sycl::backend::ext_oneapi_level_zero, ::sycl::backend::opencl}) {
    std::ranges::copy_if(all, std::back_inserter(gpus), [&](const ::sycl::device& gpu) {
      return gpu.get_backend() == backend &&
             gpu.get_info<::sycl::info::device::vendor_id>() == kIntel;
    });
    if (!gpus.empty()) break;
  }
  return gpus;
}

// Not empty.
StatusOr<std::vector<::sycl::device>> FindDevices(SyclKind kind) {
  std::vector<::sycl::device> devices;
  const Status status = Guarded([&] {
    if (kind == SyclKind::kGpu) {
      devices = ListGpus();
      return;
    }
    // Listed twice, so that two ranks have a device each.
    for (int i = 0; i < 2; ++i) {
      std::ranges::copy(::sycl::device::get_devices(::sycl::info::device_type::cpu),
                        std::back_inserter(devices));
    }
  });
  if (!status.ok()) return FailedPrecondition("SYCL cannot be used: " + status.message());
  if (!devices.empty()) return devices;
  return FailedPrecondition(
      kind == SyclKind::kGpu
          ? "the SYCL runtime finds no Intel GPU; install its driver: intel-opencl-icd, or libze1 "
            "and libze-intel-gpu1"
          : "the SYCL runtime finds no CPU; set OCL_ICD_FILENAMES to libintelocl.so of "
            "intel-opencl-rt");
}

std::string NameOf(::sycl::backend backend) {
  return backend == ::sycl::backend::ext_oneapi_level_zero ? "Level Zero" : "OpenCL";
}

Status CheckAspects(::sycl::device device) {
  if (!device.ext_oneapi_can_compile(experimental::source_language::sycl)) {
    return FailedPrecondition("the SYCL runtime cannot compile kernels: libsycl-jit.so is missing");
  }
  if (!device.has(::sycl::aspect::usm_device_allocations)) {
    return FailedPrecondition(
        "the SYCL device has no memory of its own that is addressed by pointers");
  }
  const auto sizes = device.get_info<::sycl::info::device::sub_group_sizes>();
  if (std::ranges::find(sizes, static_cast<size_t>(kSubGroupSize)) == sizes.end()) {
    return FailedPrecondition(
        "the SYCL device has no sub-groups of 16 work-items, which kernels need");
  }
  // Recording and replaying; kernels of a recorded graph are not changed.
  if (!device.has(::sycl::aspect::ext_oneapi_limited_graph)) {
    return FailedPrecondition("the SYCL device has no command graphs: update its driver");
  }
  return OkStatus();
}

device::Capabilities CapabilitiesOf(const ::sycl::device& device) {
  device::Capabilities caps = device::DetectCapabilities();
  caps.kind = device::DeviceKind::kGpu;
  namespace info = ::sycl::info::device;
  caps.gpu = {.name = device.get_info<info::name>(),
              .multiprocessors = static_cast<int32_t>(device.get_info<info::max_compute_units>()),
              .memory_bytes = static_cast<int64_t>(device.get_info<info::global_mem_size>()),
              .shared_memory_per_block_bytes =
                  static_cast<int64_t>(device.get_info<info::local_mem_size>())};
  return caps;
}

}  // namespace

struct SyclDevice::State {
  explicit State(::sycl::device device)
      : device(std::move(device)),
        context(this->device),
        capabilities(CapabilitiesOf(this->device)),
        kernels(*new KernelCache(context)) {}
  const ::sycl::device device;
  const ::sycl::context context;
  const device::Capabilities capabilities;
  // Never destroyed: the runtime keeps commands, which hold kernels, until the process exits, and
  // crashes if it drops the last reference to one then.
  KernelCache& kernels;
  std::atomic<int64_t> num_replays = 0;
};

SyclDevice::SyclDevice(std::unique_ptr<State> state) : state_(std::move(state)) {}
SyclDevice::~SyclDevice() = default;

StatusOr<std::vector<FoundSyclDevice>> FindSyclDevices(SyclKind kind) {
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<::sycl::device> devices, FindDevices(kind));
  std::vector<FoundSyclDevice> found;
  PAGEMILL_RETURN_IF_ERROR(Guarded([&] {
    namespace info = ::sycl::info::device;
    for (const ::sycl::device& device : devices) {
      found.push_back(
          {.name = device.get_info<info::name>(),
           .backend = NameOf(device.get_backend()),
           .memory_bytes = static_cast<int64_t>(device.get_info<info::global_mem_size>())});
    }
  }));
  return found;
}

StatusOr<std::unique_ptr<SyclDevice>> SyclDevice::Open(SyclKind kind, int32_t index) {
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<::sycl::device> devices, FindDevices(kind));
  if (index < 0 || static_cast<size_t>(index) >= devices.size()) {
    return FailedPrecondition("SYCL has the devices 0 to " + std::to_string(devices.size() - 1));
  }
  std::unique_ptr<State> state;
  Status status;
  const Status opened = Guarded([&] {
    const ::sycl::device& device = devices[static_cast<size_t>(index)];
    status = CheckAspects(device);
    state = std::make_unique<State>(device);
  });
  PAGEMILL_RETURN_IF_ERROR(opened);
  PAGEMILL_RETURN_IF_ERROR(status);
  return std::unique_ptr<SyclDevice>(new SyclDevice(std::move(state)));
}

const device::Capabilities& SyclDevice::capabilities() const { return state_->capabilities; }

int64_t SyclDevice::num_replays() const { return state_->num_replays; }

Status SyclDevice::Compile(const KernelModule& module) { return state_->kernels.Compile(module); }

StatusOr<device::DeviceMemory> SyclDevice::Allocate(int64_t bytes, const char* purpose) {
  PAGEMILL_ASSIGN_OR_RETURN(
      const std::span<std::byte> memory,
      AllocateUsm(bytes, "the SYCL device has no memory left for ", purpose, [&](size_t size) {
        return ::sycl::aligned_alloc_device(kAlignment, size, state_->device, state_->context);
      }));
  return device::DeviceMemory(this, memory);
}

StatusOr<device::HostMemory> SyclDevice::AllocateHost(int64_t bytes, const char* purpose) {
  PAGEMILL_ASSIGN_OR_RETURN(
      const std::span<std::byte> memory,
      AllocateUsm(bytes, "the system has no memory left for ", purpose, [&](size_t size) {
        return ::sycl::aligned_alloc_host(kAlignment, size, state_->context);
      }));
  return device::HostMemory(this, memory);
}

// Kernels read all host USM.
StatusOr<device::HostMemory> SyclDevice::AllocateMapped(int64_t bytes, const char* purpose) {
  return AllocateHost(bytes, purpose);
}

device::MemoryBytes SyclDevice::CountMemory() {
  device::MemoryBytes memory;
  (void)Guarded([&] {
    memory.total =
        static_cast<int64_t>(state_->device.get_info<::sycl::info::device::global_mem_size>());
  });
  memory.free = memory.total;
  (void)Guarded([&] {
    if (!state_->device.has(::sycl::aspect::ext_intel_free_memory)) return;
    memory.free = static_cast<int64_t>(
        state_->device.get_info<::sycl::ext::intel::info::device::free_memory>());
  });
  return memory;
}

void SyclDevice::Free(std::span<std::byte> bytes) {
  // A failure to free has no remedy; the runtime reports it again with the next work.
  (void)Guarded([&] { ::sycl::free(bytes.data(), state_->context); });
}

void SyclDevice::FreeHost(std::span<std::byte> bytes) { Free(bytes); }

StatusOr<std::unique_ptr<device::Stream>> SyclDevice::NewStream() {
  std::unique_ptr<device::Stream> stream;
  PAGEMILL_RETURN_IF_ERROR(Guarded([&] {
    stream = std::make_unique<QueueStream>(state_->context, state_->device, state_->kernels,
                                           state_->num_replays);
  }));
  return stream;
}

std::unique_ptr<device::Event> SyclDevice::NewEvent() { return std::make_unique<QueueEvent>(); }

}  // namespace pagemill::sycl
