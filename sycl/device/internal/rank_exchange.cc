#include "sycl/device/internal/rank_exchange.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sycl/device/internal/status.h"
#include "sycl/device/oneccl.h"

namespace pagemill::sycl {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, of what is sent and of what is received

Status CheckRanks(const device::Ranks& ranks) {
  if (ranks.num_ranks > kMaxSyclRanks) {
    const std::string most = std::to_string(kMaxSyclRanks);
    return InvalidArgument("SYCL devices exchange data among " + most + " ranks at most, not " +
                           std::to_string(ranks.num_ranks) + ": use --tensor-parallel-size " +
                           most);
  }
  if (ranks.buffer_bytes >= kAlignment * (ranks.num_ranks + 1)) return OkStatus();
  return InvalidArgument("a buffer of " + std::to_string(ranks.buffer_bytes) +
                         " bytes is too small for " + std::to_string(ranks.num_ranks) + " ranks");
}

// Memory for what a rank sends, and behind it for what it receives.
StatusOr<UsmMemory> Allocate(const RankMemory& sizes, const ::sycl::queue& queue,
                             ::sycl::usm::alloc kind) {
  const auto bytes = static_cast<size_t>(sizes.most_bytes * (sizes.num_ranks + 1));
  UsmMemory memory(nullptr, FreeUsm{queue.get_context()});
  const Status status = Guarded([&] {
    memory.reset(static_cast<std::byte*>(
        ::sycl::aligned_alloc(static_cast<size_t>(kAlignment), bytes, queue, kind)));
  });
  if (status.ok() && memory != nullptr) return memory;
  return ResourceExhausted("there is no memory left for " + std::to_string(bytes) +
                           " bytes through which ranks exchange data" +
                           (status.ok() ? std::string() : ": " + status.message()));
}

// The number that oneCCL knows the device by.
int32_t IndexOnPlatform(const ::sycl::device& device) {
  const std::vector<::sycl::device> all = device.get_platform().get_devices();
  return static_cast<int32_t>(std::ranges::find(all, device) - all.begin());
}

// By the host, which waits for the data of its device and for those of the other ranks.
class HostExchange final : public RankExchange {
 public:
  HostExchange(::sycl::queue& queue, const RankMemory& memory, UsmMemory device_memory,
               UsmMemory host_memory, const device::Ranks& ranks)
      : RankExchange(queue, memory, std::move(device_memory)),
        host_memory_(std::move(host_memory)),
        exchange_(ranks.exchange) {}

  Status Gather(const std::byte* from, int64_t bytes) override {
    const std::span sent(host_memory_.get(), static_cast<size_t>(bytes));
    const std::span received(host_memory_.get() + memory().most_bytes,
                             sent.size() * static_cast<size_t>(memory().num_ranks));
    queue_.memcpy(sent.data(), from, sent.size()).wait_and_throw();
    PAGEMILL_RETURN_IF_ERROR(exchange_(sent, received));
    // The next exchange waits for this copy before it writes there again.
    queue_.memcpy(memory().received, received.data(), received.size());
    return OkStatus();
  }

 private:
  const UsmMemory host_memory_;
  const std::function<Status(std::span<const std::byte>, std::span<std::byte>)> exchange_;
};

class OnecclExchange final : public RankExchange {
 public:
  OnecclExchange(::sycl::queue& queue, const RankMemory& memory, UsmMemory device_memory,
                 std::unique_ptr<Oneccl> oneccl)
      : RankExchange(queue, memory, std::move(device_memory)), oneccl_(std::move(oneccl)) {}

  Status Gather(const std::byte* from, int64_t bytes) override {
    return oneccl_->Gather(from, bytes, memory().received, &queue_);
  }

 private:
  const std::unique_ptr<Oneccl> oneccl_;
};

}  // namespace

StatusOr<std::unique_ptr<RankExchange>> RankExchange::Join(const device::Ranks& ranks,
                                                           ::sycl::queue& queue) {
  PAGEMILL_RETURN_IF_ERROR(CheckRanks(ranks));
  RankMemory memory = {
      .rank = ranks.rank,
      .num_ranks = ranks.num_ranks,
      .most_bytes = ranks.buffer_bytes / (ranks.num_ranks + 1) / kAlignment * kAlignment};
  PAGEMILL_ASSIGN_OR_RETURN(UsmMemory device_memory,
                            Allocate(memory, queue, ::sycl::usm::alloc::device));
  memory.sent = device_memory.get();
  memory.received = memory.sent + memory.most_bytes;
  PAGEMILL_ASSIGN_OR_RETURN(UsmMemory host_memory,
                            Allocate(memory, queue, ::sycl::usm::alloc::host));
  PAGEMILL_ASSIGN_OR_RETURN(
      std::unique_ptr<Oneccl> oneccl,
      Oneccl::Join(OnecclLibrary::Open(), ranks, IndexOnPlatform(queue.get_device())));
  if (oneccl != nullptr) {
    return std::unique_ptr<RankExchange>(std::make_unique<OnecclExchange>(
        queue, memory, std::move(device_memory), std::move(oneccl)));
  }
  return std::unique_ptr<RankExchange>(std::make_unique<HostExchange>(
      queue, memory, std::move(device_memory), std::move(host_memory), ranks));
}

}  // namespace pagemill::sycl
