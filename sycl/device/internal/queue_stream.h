// File: sycl/device/internal/queue_stream.h
// A stream that is an in-order queue, its events and its graphs.
//
// A graph is a list of command graphs, between which the ranks exchange data: the runtime records
// neither what the host does nor what a library does by itself.
#ifndef PAGEMILL_SYCL_DEVICE_INTERNAL_QUEUE_STREAM_H_
#define PAGEMILL_SYCL_DEVICE_INTERNAL_QUEUE_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sycl/sycl.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "sycl/device/internal/kernel_cache.h"
#include "sycl/device/internal/rank_exchange.h"
#include "sycl/device/internal/status.h"
#include "sycl/device/onednn.h"
#include "sycl/device/sycl_stream.h"

namespace pagemill::sycl {

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
  Status Synchronize() override;
  void Set(::sycl::event event, std::shared_ptr<StreamErrors> errors);

 private:
  ::sycl::event event_;
  std::shared_ptr<StreamErrors> errors_;
};

class QueueStream final : public SyclStream {
 public:
  // All that it refers to outlives it.
  QueueStream(const ::sycl::context& context, const ::sycl::device& device, KernelCache& kernels,
              std::atomic<int64_t>& num_replays);
  ~QueueStream() override;

  void CopyToDevice(std::byte* to, std::span<const std::byte> from) override;
  void CopyToHost(std::span<std::byte> to, const std::byte* from) override;
  void Record(device::Event& event) override;
  void BeginCapture() override;
  StatusOr<std::unique_ptr<device::Graph>> EndCapture() override;
  void Replay(const device::Graph& graph) override;
  Status Join(const device::Ranks& ranks) override;

  void Launch(const KernelLaunch& launch, std::span<const std::byte> params) override;
  bool CanMultiply(const MatrixProduct& product) override;
  bool Multiply(const MatrixProduct& product) override;
  const RankMemory* rank_memory() const override;
  void Gather(const std::byte* from, int64_t bytes) override;

 private:
  using Recording = ::sycl::ext::oneapi::experimental::command_graph<
      ::sycl::ext::oneapi::experimental::graph_state::modifiable>;
  using Recorded = ::sycl::ext::oneapi::experimental::command_graph<
      ::sycl::ext::oneapi::experimental::graph_state::executable>;
  // A call of Gather().
  struct Exchange {
    const std::byte* from;
    int64_t bytes;
  };
  using Piece = std::variant<Recorded, Exchange>;
  struct CommandGraph;

  // False if the library cannot be used, or use(onednn) is false. True also if there is an error,
  // which is reported.
  template <typename Use>
  bool WithOnednn(const Use& use);
  Onednn* FindOnednn();  // null if the library cannot be used
  // After an error nothing is enqueued.
  template <typename Body>
  void Enqueue(const Body& body);
  void BeginPiece();
  void EndPiece();

  const std::shared_ptr<StreamErrors> errors_;
  KernelCache& kernels_;
  std::atomic<int64_t>& num_replays_;  // of all streams
  ::sycl::queue queue_;
  std::unique_ptr<RankExchange> exchange_;  // once it has joined other ranks
  std::optional<Recording> recording_;      // the piece of a graph that is being captured
  std::vector<Piece> pieces_;               // those before it
  Status graph_status_;                     // no error of the stream
  bool has_looked_for_onednn_ = false;
  std::unique_ptr<Onednn> onednn_;  // once it has multiplied
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_INTERNAL_QUEUE_STREAM_H_
