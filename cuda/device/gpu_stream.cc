#include "cuda/device/gpu_stream.h"

#include <string>
#include <utility>

namespace pagemill::gpu {
namespace {

class GpuGraph final : public device::Graph {
 public:
  explicit GpuGraph(PAGEMILL_GPU(GraphExec_t) exec) : exec(exec) {}
  ~GpuGraph() override { (void)PAGEMILL_GPU(GraphExecDestroy)(exec); }
  const PAGEMILL_GPU(GraphExec_t) exec;
};

}  // namespace

Status ToStatus(PAGEMILL_GPU(Error_t) error, const char* doing) {
  if (error == PAGEMILL_GPU(Success)) return OkStatus();
  return Internal(std::string("the GPU failed ") + doing + ": " +
                  PAGEMILL_GPU(GetErrorString)(error));
}

StatusOr<std::unique_ptr<GpuStream>> GpuStream::Create(
    int32_t device, const device::GpuCapabilities& capabilities) {
  PAGEMILL_RETURN_IF_ERROR(ToStatus(PAGEMILL_GPU(SetDevice)(device), "to be selected"));
  PAGEMILL_GPU(Stream_t) stream = nullptr;
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(PAGEMILL_GPU(StreamCreateWithFlags)(&stream, PAGEMILL_GPU(StreamNonBlocking)),
               "to make a stream"));
  void* counters = nullptr;
  const Status allocated = ToStatus(
      PAGEMILL_GPU(Malloc)(&counters, kCounters * sizeof(uint32_t)), "to allocate counters");
  if (!allocated.ok()) {
    (void)PAGEMILL_GPU(StreamDestroy)(stream);
    return allocated;
  }
  std::unique_ptr<GpuStream> made(
      new GpuStream(device, capabilities, stream, static_cast<uint32_t*>(counters)));
  static constexpr std::byte kZeros[kCounters * sizeof(uint32_t)] = {};
  made->CopyToDevice(static_cast<std::byte*>(counters), kZeros);
  PAGEMILL_RETURN_IF_ERROR(*made->status_);
  return StatusOr<std::unique_ptr<GpuStream>>(std::move(made));
}

GpuStream::~GpuStream() {
  (void)PAGEMILL_GPU(StreamSynchronize)(stream_);
  (void)PAGEMILL_GPU(StreamDestroy)(stream_);
  (void)PAGEMILL_GPU(Free)(counters_);
  for (const auto& [code, loaded] : loaded_) (void)PAGEMILL_GPU(LibraryUnload)(loaded.library);
}

void GpuStream::MakeCurrent() { Check(PAGEMILL_GPU(SetDevice)(device_)); }

void GpuStream::Check(PAGEMILL_GPU(Error_t) error) {
  if (status_->ok()) *status_ = ToStatus(error, "while work was enqueued");
}

PAGEMILL_GPU(Kernel_t) GpuStream::LoadKernel(const void* code, const char* name) {
  const auto found = loaded_.find(code);
  if (found != loaded_.end()) return found->second.kernel;
  LoadedCode loaded;
  auto error = PAGEMILL_GPU(LibraryLoadData)(&loaded.library, code, nullptr, nullptr, 0, nullptr,
                                             nullptr, 0);
  if (error == PAGEMILL_GPU(Success)) {
    error = PAGEMILL_GPU(LibraryGetKernel)(&loaded.kernel, loaded.library, name);
    if (error != PAGEMILL_GPU(Success)) (void)PAGEMILL_GPU(LibraryUnload)(loaded.library);
  }
  Check(error);
  if (error != PAGEMILL_GPU(Success)) return nullptr;
  loaded_.emplace(code, loaded);
  return loaded.kernel;
}

void GpuStream::CopyToDevice(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  Check(PAGEMILL_GPU(MemcpyAsync)(to, from.data(), from.size(), PAGEMILL_GPU(MemcpyHostToDevice),
                                  stream_));
}

void GpuStream::CopyToHost(std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return;
  Check(PAGEMILL_GPU(MemcpyAsync)(to.data(), from, to.size(), PAGEMILL_GPU(MemcpyDeviceToHost),
                                  stream_));
}

void GpuStream::Record(device::Event& event) {
  GpuEvent& gpu = static_cast<GpuEvent&>(event);
  gpu.status_ = status_;
  gpu.peers_ = peers_;
  Check(PAGEMILL_GPU(EventRecord)(gpu.event_, stream_));
}

void GpuStream::BeginCapture() {
  MakeCurrent();
  Check(PAGEMILL_GPU(StreamBeginCapture)(stream_, PAGEMILL_GPU(StreamCaptureModeThreadLocal)));
}

StatusOr<std::unique_ptr<device::Graph>> GpuStream::EndCapture() {
  PAGEMILL_GPU(Graph_t) graph = nullptr;
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(PAGEMILL_GPU(StreamEndCapture)(stream_, &graph), "to record a graph"));
  PAGEMILL_RETURN_IF_ERROR(*status_);
  PAGEMILL_GPU(GraphExec_t) exec = nullptr;
  const auto error = PAGEMILL_GPU(GraphInstantiateWithFlags)(&exec, graph, 0);
  (void)PAGEMILL_GPU(GraphDestroy)(graph);
  if (error == PAGEMILL_GPU(ErrorMemoryAllocation)) {
    (void)PAGEMILL_GPU(GetLastError)();
    return ResourceExhausted("the GPU has no memory left for a graph");
  }
  PAGEMILL_RETURN_IF_ERROR(ToStatus(error, "to prepare a graph"));
  return std::unique_ptr<device::Graph>(std::make_unique<GpuGraph>(exec));
}

void GpuStream::Replay(const device::Graph& graph) {
  MakeCurrent();
  Check(PAGEMILL_GPU(GraphLaunch)(static_cast<const GpuGraph&>(graph).exec, stream_));
}

Status GpuStream::Join(const device::Ranks& ranks) {
  PAGEMILL_ASSIGN_OR_RETURN(peers_, PeerGroup::Join(device_, ranks, stream_));
  return OkStatus();
}

void GpuStream::Exchange(std::span<const Nccl::Part> sends, std::span<const Nccl::Part> receives) {
  MakeCurrent();
  if (status_->ok()) *status_ = peers_->nccl()->Exchange(sends, receives, stream_);
}

bool GpuStream::Multiply(const MatrixProduct& product) {
  MakeCurrent();
  if (!status_->ok()) return true;
  if (!std::exchange(has_asked_for_cublas_lt_, true)) {
    const StatusOr<CublasLtLibrary> library = CublasLtLibrary::Open();
    if (library.ok()) {
      // Without memory for it other kernels multiply.
      StatusOr<std::unique_ptr<CublasLt>> created = CublasLt::Create(*library);
      if (created.ok()) cublas_lt_ = *std::move(created);
    }
  }
  if (cublas_lt_ == nullptr) return false;
  const StatusOr<bool> is_enqueued = cublas_lt_->Multiply(product, stream_);
  if (is_enqueued.ok()) return *is_enqueued;
  *status_ = is_enqueued.status();
  return true;
}

StatusOr<std::unique_ptr<GpuEvent>> GpuEvent::Create() {
  PAGEMILL_GPU(Event_t) event = nullptr;
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(PAGEMILL_GPU(EventCreateWithFlags)(&event, PAGEMILL_GPU(EventDisableTiming)),
               "to make an event"));
  return std::unique_ptr<GpuEvent>(new GpuEvent(event));
}

GpuEvent::~GpuEvent() { (void)PAGEMILL_GPU(EventDestroy)(event_); }

Status GpuEvent::Synchronize() {
  if (status_ == nullptr) return OkStatus();
  PAGEMILL_RETURN_IF_ERROR(ToStatus(PAGEMILL_GPU(EventSynchronize)(event_), "in a step"));
  if (peers_ != nullptr) PAGEMILL_RETURN_IF_ERROR(peers_->status());
  return *status_;
}

}  // namespace pagemill::gpu
