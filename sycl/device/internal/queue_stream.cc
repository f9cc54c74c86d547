#include "sycl/device/internal/queue_stream.h"

#include <exception>

#include "cc/device/ranks.h"

namespace pagemill::sycl {

namespace experimental = ::sycl::ext::oneapi::experimental;

Status QueueEvent::Synchronize() {
  if (errors_ == nullptr) return OkStatus();  // never recorded
  errors_->Add(Guarded([&] { event_.wait_and_throw(); }));
  return errors_->first();
}

void QueueEvent::Set(::sycl::event event, std::shared_ptr<StreamErrors> errors) {
  event_ = std::move(event);
  errors_ = std::move(errors);
}

struct QueueStream::CommandGraph final : device::Graph {
  explicit CommandGraph(std::vector<Piece> pieces) : pieces(std::move(pieces)) {}
  const std::vector<Piece> pieces;
};

QueueStream::QueueStream(const ::sycl::context& context, const ::sycl::device& device,
                         KernelCache& kernels, std::atomic<int64_t>& num_replays)
    : errors_(std::make_shared<StreamErrors>()),
      kernels_(kernels),
      num_replays_(num_replays),
      queue_(
          context, device,
          [errors = errors_](::sycl::exception_list list) {
            for (const std::exception_ptr& error : list) {
              errors->Add(Guarded([&] { std::rethrow_exception(error); }));
            }
          },
          ::sycl::property::queue::in_order()) {}

// Also after an error: what was enqueued before it may still run.
QueueStream::~QueueStream() {
  (void)Guarded([&] { queue_.wait_and_throw(); });
}

void QueueStream::CopyToDevice(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  Enqueue([&] { queue_.memcpy(to, from.data(), from.size()); });
}

void QueueStream::CopyToHost(std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return;
  Enqueue([&] { queue_.memcpy(to.data(), from, to.size()); });
}

void QueueStream::Record(device::Event& event) {
  static_cast<QueueEvent&>(event).Set({}, errors_);
  Enqueue(
      [&] { static_cast<QueueEvent&>(event).Set(queue_.ext_oneapi_submit_barrier(), errors_); });
}

void QueueStream::BeginCapture() {
  pieces_.clear();
  graph_status_ = OkStatus();
  BeginPiece();
}

StatusOr<std::unique_ptr<device::Graph>> QueueStream::EndCapture() {
  EndPiece();
  std::vector<Piece> pieces = std::exchange(pieces_, {});
  PAGEMILL_RETURN_IF_ERROR(errors_->first());
  PAGEMILL_RETURN_IF_ERROR(graph_status_);
  return std::unique_ptr<device::Graph>(std::make_unique<CommandGraph>(std::move(pieces)));
}

void QueueStream::BeginPiece() {
  Enqueue([&] {
    recording_.emplace(queue_.get_context(), queue_.get_device());
    recording_->begin_recording(queue_);
  });
}

void QueueStream::EndPiece() {
  Enqueue([&] { recording_->end_recording(); });
  if (errors_->first().ok() && graph_status_.ok()) {
    graph_status_ = Guarded([&] {
      const auto lock = kernels_.LockParameters();
      if (!recording_->get_nodes().empty()) pieces_.emplace_back(recording_->finalize());
    });
  }
  recording_.reset();
}

void QueueStream::Replay(const device::Graph& graph) {
  for (const Piece& piece : static_cast<const CommandGraph&>(graph).pieces) {
    if (const auto* exchange = std::get_if<Exchange>(&piece)) {
      Gather(exchange->from, exchange->bytes);
    } else {
      Enqueue([&] {
        const auto lock = kernels_.LockParameters();
        queue_.ext_oneapi_graph(std::get<Recorded>(piece));
      });
    }
  }
  ++num_replays_;
}

Status QueueStream::Join(const device::Ranks& ranks) {
  PAGEMILL_ASSIGN_OR_RETURN(exchange_, RankExchange::Join(ranks, queue_));
  // What all ranks compute whole has the same bits on all.
  PAGEMILL_ASSIGN_OR_RETURN(const bool all_have_onednn,
                            device::OnAllRanks(ranks, FindOnednn() != nullptr));
  if (!all_have_onednn) onednn_.reset();
  return OkStatus();
}

const RankMemory* QueueStream::rank_memory() const {
  return exchange_ == nullptr ? nullptr : &exchange_->memory();
}

void QueueStream::Gather(const std::byte* from, int64_t bytes) {
  if (!recording_.has_value()) {
    return Enqueue([&] { errors_->Add(exchange_->Gather(from, bytes)); });
  }
  EndPiece();
  pieces_.emplace_back(Exchange{from, bytes});
  BeginPiece();
}

void QueueStream::Launch(const KernelLaunch& launch, std::span<const std::byte> params) {
  if (launch.groups == 0 || !errors_->first().ok()) return;
  const StatusOr<::sycl::kernel> kernel = kernels_.Find(launch.module, launch.kernel);
  if (!kernel.ok()) return errors_->Add(kernel.status());
  const auto size = static_cast<size_t>(launch.group_size);
  Enqueue([&] {
    const auto lock = kernels_.LockParameters();
    queue_.submit([&](::sycl::handler& handler) {
      handler.set_arg(0, experimental::raw_kernel_arg(params.data(), params.size()));
      handler.parallel_for(::sycl::nd_range<1>(static_cast<size_t>(launch.groups) * size, size),
                           *kernel);
    });
  });
}

bool QueueStream::CanMultiply(const MatrixProduct& product) {
  return WithOnednn([&](Onednn& onednn) { return onednn.CanMultiply(product); });
}

bool QueueStream::Multiply(const MatrixProduct& product) {
  return WithOnednn([&](Onednn& onednn) { return onednn.Multiply(product); });
}

template <typename Use>
bool QueueStream::WithOnednn(const Use& use) {
  // What the library enqueues on a CPU frees its own operands, so a graph could replay it once.
  if (recording_.has_value() && queue_.get_device().is_cpu()) return false;
  bool is_used = true;
  Enqueue([&] {
    Onednn* const onednn = FindOnednn();
    const StatusOr<bool> result = onednn == nullptr ? false : use(*onednn);
    errors_->Add(result.status());
    is_used = !result.ok() || *result;
  });
  return is_used;
}

Onednn* QueueStream::FindOnednn() {
  if (std::exchange(has_looked_for_onednn_, true)) return onednn_.get();
  const StatusOr<OnednnLibrary> library = OnednnLibrary::Open();
  if (!library.ok()) return nullptr;
  const ::sycl::context context = queue_.get_context();
  const ::sycl::device device = queue_.get_device();
  // Without memory for it other kernels multiply.
  StatusOr<std::unique_ptr<Onednn>> created = Onednn::Create(*library, &device, &context, &queue_);
  if (created.ok()) onednn_ = *std::move(created);
  return onednn_.get();
}

template <typename Body>
void QueueStream::Enqueue(const Body& body) {
  if (errors_->first().ok()) errors_->Add(Guarded(body));
}

}  // namespace pagemill::sycl
