#include "sycl/device/sycl_device.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <sycl/sycl.hpp>
#include <utility>
#include <vector>

#include "sycl/device/internal/kernel_cache.h"
#include "sycl/device/internal/status.h"
#include "sycl/device/onednn.h"
#include "sycl/device/sycl_stream.h"

namespace pagemill::sycl {
namespace {

namespace experimental = ::sycl::ext::oneapi::experimental;

constexpr size_t kAlignment = 256;  // bytes

// The first error of a stream's work. Shared with its events.
class StreamErrors {
 public:
  void Add(Status status) {
    if (status.ok()) return;
    std::lock_guard lock(mutex_);
    if (first_.ok()) first_ = std::move(status);
  }
  Status first() const {
    std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  Status first_;
};

class QueueEvent final : public device::Event {
 public:
  Status Synchronize() override {
    if (errors_ == nullptr) return OkStatus();  // never recorded
    errors_->Add(Guarded([&] { event_.wait_and_throw(); }));
    return errors_->first();
  }
  void Set(::sycl::event event, std::shared_ptr<StreamErrors> errors) {
    event_ = std::move(event);
    errors_ = std::move(errors);
  }

 private:
  ::sycl::event event_;
  std::shared_ptr<StreamErrors> errors_;
};

class CommandGraph final : public device::Graph {
 public:
  using Executable = experimental::command_graph<experimental::graph_state::executable>;
  explicit CommandGraph(Executable executable) : executable_(std::move(executable)) {}
  const Executable& executable() const { return executable_; }

 private:
  const Executable executable_;
};

class QueueStream final : public SyclStream {
 public:
  QueueStream(const ::sycl::context& context, const ::sycl::device& device, KernelCache& kernels,
              std::atomic<int64_t>& num_replays)
      : errors_(std::make_shared<StreamErrors>()),
        kernels_(kernels),
        num_replays_(num_replays),
        queue_(context, device,
               [errors = errors_](::sycl::exception_list list) {
                 for (const std::exception_ptr& error : list) {
                   errors->Add(Guarded([&] { std::rethrow_exception(error); }));
                 }
               },
               ::sycl::property::queue::in_order()) {}

  ~QueueStream() override {
    Enqueue([&] { queue_.wait_and_throw(); });
  }

  void CopyToDevice(std::byte* to, std::span<const std::byte> from) override {
    if (from.empty()) return;
    Enqueue([&] { queue_.memcpy(to, from.data(), from.size()); });
  }
  void CopyToHost(std::span<std::byte> to, const std::byte* from) override {
    if (to.empty()) return;
    Enqueue([&] { queue_.memcpy(to.data(), from, to.size()); });
  }
  void Record(device::Event& event) override {
    static_cast<QueueEvent&>(event).Set({}, errors_);
    Enqueue([&] {
      static_cast<QueueEvent&>(event).Set(queue_.ext_oneapi_submit_barrier(), errors_);
    });
  }

  void BeginCapture() override {
    Enqueue([&] {
      capture_.emplace(queue_.get_context(), queue_.get_device());
      capture_->begin_recording(queue_);
    });
  }
  StatusOr<std::unique_ptr<device::Graph>> EndCapture() override {
    std::unique_ptr<device::Graph> graph;
    Enqueue([&] {
      capture_->end_recording();
      graph = std::make_unique<CommandGraph>(capture_->finalize());
    });
    capture_.reset();
    PAGEMILL_RETURN_IF_ERROR(errors_->first());
    return graph;
  }
  void Replay(const device::Graph& graph) override {
    Enqueue([&] { queue_.ext_oneapi_graph(static_cast<const CommandGraph&>(graph).executable()); });
    ++num_replays_;
  }

  void Launch(const KernelLaunch& launch, std::span<const std::byte> params) override {
    if (launch.groups == 0 || !errors_->first().ok()) return;
    const StatusOr<::sycl::kernel> kernel = kernels_.Find(launch.module, launch.kernel);
    if (!kernel.ok()) return errors_->Add(kernel.status());
    const auto size = static_cast<size_t>(launch.group_size);
    Enqueue([&] {
      queue_.submit([&](::sycl::handler& handler) {
        handler.set_arg(0, experimental::raw_kernel_arg(params.data(), params.size()));
        handler.parallel_for(
            ::sycl::nd_range<1>(static_cast<size_t>(launch.groups) * size, size), *kernel);
      });
    });
  }

  bool CanMultiply(const MatrixProduct& product) override {
    return WithOnednn([&](Onednn& onednn) { return onednn.CanMultiply(product); });
  }
  bool Multiply(const MatrixProduct& product) override {
    return WithOnednn([&](Onednn& onednn) { return onednn.Multiply(product); });
  }

 private:
  // False if the library cannot be used, or use(onednn) is false. True also if there is an error,
  // which is reported.
  template <typename Use>
  bool WithOnednn(const Use& use) {
    // What the library enqueues on a CPU frees its own operands, so a graph could replay it once.
    if (capture_.has_value() && queue_.get_device().is_cpu()) return false;
    bool is_used = true;
    Enqueue([&] {
      Onednn* const onednn = FindOnednn();
      const StatusOr<bool> result = onednn == nullptr ? false : use(*onednn);
      errors_->Add(result.status());
      is_used = !result.ok() || *result;
    });
    return is_used;
  }

  // Null if the library cannot be used.
  Onednn* FindOnednn() {
    if (std::exchange(has_looked_for_onednn_, true)) return onednn_.get();
    const StatusOr<OnednnLibrary> library = OnednnLibrary::Open();
    if (!library.ok()) return nullptr;
    const ::sycl::context context = queue_.get_context();
    const ::sycl::device device = queue_.get_device();
    // Without memory for it other kernels multiply.
    StatusOr<std::unique_ptr<Onednn>> created =
        Onednn::Create(*library, &device, &context, &queue_);
    if (created.ok()) onednn_ = *std::move(created);
    return onednn_.get();
  }

  // After an error nothing is enqueued.
  template <typename Body>
  void Enqueue(const Body& body) {
    if (errors_->first().ok()) errors_->Add(Guarded(body));
  }

  const std::shared_ptr<StreamErrors> errors_;
  KernelCache& kernels_;
  std::atomic<int64_t>& num_replays_;  // of all streams
  ::sycl::queue queue_;
  std::optional<experimental::command_graph<experimental::graph_state::modifiable>> capture_;
  bool has_looked_for_onednn_ = false;
  std::unique_ptr<Onednn> onednn_;  // once it has multiplied
};

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
    devices = kind == SyclKind::kGpu
                  ? ListGpus()
                  : ::sycl::device::get_devices(::sycl::info::device_type::cpu);
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
