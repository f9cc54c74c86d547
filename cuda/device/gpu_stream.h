// File: cuda/device/gpu_stream.h
// A stream of a GPU, for code of this tree that launches kernels on it (cuda/gpu_launch.h) or hands
// it to a library. Others see device::Stream.
#ifndef PAGEMILL_CUDA_DEVICE_GPU_STREAM_H_
#define PAGEMILL_CUDA_DEVICE_GPU_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cuda/device/cublas_lt.h"
#include "cuda/device/peer_group.h"
#include "cuda/gpu_runtime.h"

namespace pagemill::gpu {

// kInternal with the runtime's text, or OK.
Status ToStatus(PAGEMILL_GPU(Error_t) error, const char* doing);

class GpuStream final : public device::Stream {
 public:
  static StatusOr<std::unique_ptr<GpuStream>> Create(int32_t device,
                                                     const device::GpuCapabilities& capabilities);
  ~GpuStream() override;

  void CopyToDevice(std::byte* to, std::span<const std::byte> from) override;
  void CopyToHost(std::span<std::byte> to, const std::byte* from) override;
  void Record(device::Event& event) override;
  void BeginCapture() override;
  StatusOr<std::unique_ptr<device::Graph>> EndCapture() override;
  void Replay(const device::Graph& graph) override;
  Status Join(const device::Ranks& ranks) override;

  PAGEMILL_GPU(Stream_t) native() const { return stream_; }
  // Of its GPU.
  const device::GpuCapabilities& capabilities() const { return capabilities_; }
  // Null unless it has joined other ranks.
  const PeerGroup* peers() const { return peers_.get(); }
  // Enqueues Nccl::Exchange() of the ranks that it has joined.
  void Exchange(std::span<const Nccl::Part> sends, std::span<const Nccl::Part> receives);
  // Enqueues CublasLt::Multiply(). False if the library cannot multiply it.
  bool Multiply(const MatrixProduct& product);
  // Makes this stream's GPU the calling thread's current one.
  void MakeCurrent();
  // Remembers the first error, for events.
  void Check(PAGEMILL_GPU(Error_t) error);
  // Words of the GPU's memory, for what blocks of a kernel count. They are 0 between kernels.
  uint32_t* counters() const { return counters_; }
  static constexpr int32_t kCounters = 2048;
  // The kernel of this name in `code` for the GPU, which is loaded with the first call. Null after
  // an error, which is Check()ed.
  PAGEMILL_GPU(Kernel_t) LoadKernel(const void* code, const char* name);

 private:
  struct LoadedCode {
    PAGEMILL_GPU(Library_t) library = nullptr;
    PAGEMILL_GPU(Kernel_t) kernel = nullptr;
  };

  GpuStream(int32_t device, const device::GpuCapabilities& capabilities,
            PAGEMILL_GPU(Stream_t) stream, uint32_t* counters)
      : device_(device), capabilities_(capabilities), stream_(stream), counters_(counters) {}

  const int32_t device_;
  const device::GpuCapabilities capabilities_;
  const PAGEMILL_GPU(Stream_t) stream_;
  uint32_t* const counters_;
  std::map<const void*, LoadedCode> loaded_;  // by its code
  const std::shared_ptr<Status> status_ = std::make_shared<Status>();  // events have it, too
  std::shared_ptr<const PeerGroup> peers_;                               // likewise
  bool has_asked_for_cublas_lt_ = false;
  std::unique_ptr<CublasLt> cublas_lt_;  // once it has multiplied
};

class GpuEvent final : public device::Event {
 public:
  static StatusOr<std::unique_ptr<GpuEvent>> Create();
  ~GpuEvent() override;

  Status Synchronize() override;

 private:
  friend class GpuStream;
  explicit GpuEvent(PAGEMILL_GPU(Event_t) event) : event_(event) {}

  const PAGEMILL_GPU(Event_t) event_;
  // Those that the stream has on which it was recorded.
  std::shared_ptr<const Status> status_;
  std::shared_ptr<const PeerGroup> peers_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_DEVICE_GPU_STREAM_H_
