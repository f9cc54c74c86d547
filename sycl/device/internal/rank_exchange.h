// File: sycl/device/internal/rank_exchange.h
// How a stream exchanges data with those of other ranks, which are processes with a device each (or
// threads, in tests): by oneCCL if every rank has it (sycl/device/oneccl.h), otherwise through
// memory of the host. Either way ranks get exact copies, which ops add in rank order. There is no
// limit of time: the host's way ends when a rank does, and oneCCL's not at all.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<RankExchange> exchange,
//                             RankExchange::Join(ranks, queue));
//   PAGEMILL_RETURN_IF_ERROR(exchange->Gather(x, bytes));
//   // then kernels that read exchange->memory().received
#ifndef PAGEMILL_SYCL_DEVICE_INTERNAL_RANK_EXCHANGE_H_
#define PAGEMILL_SYCL_DEVICE_INTERNAL_RANK_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sycl/sycl.hpp>
#include <utility>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "sycl/device/sycl_stream.h"

namespace pagemill::sycl {

// Memory of the runtime, freed in its context.
struct FreeUsm {
  ::sycl::context context;
  void operator()(std::byte* memory) const { ::sycl::free(memory, context); }
};
using UsmMemory = std::unique_ptr<std::byte, FreeUsm>;

class RankExchange {
 public:
  // A call of all ranks. `queue` is an in-order one, and outlives the exchange. kInvalidArgument:
  // there are more than kMaxSyclRanks, or the buffer has no room for 64 bytes of each.
  // kResourceExhausted: there is no memory left.
  static StatusOr<std::unique_ptr<RankExchange>> Join(const device::Ranks& ranks,
                                                      ::sycl::queue& queue);
  // The queue is idle.
  virtual ~RankExchange() = default;
  RankExchange(const RankExchange&) = delete;
  RankExchange& operator=(const RankExchange&) = delete;

  const RankMemory& memory() const { return memory_; }
  // SyclStream::Gather(). Throws what the runtime throws.
  virtual Status Gather(const std::byte* from, int64_t bytes) = 0;

 protected:
  RankExchange(::sycl::queue& queue, const RankMemory& memory, UsmMemory device_memory)
      : queue_(queue), memory_(memory), device_memory_(std::move(device_memory)) {}

  ::sycl::queue& queue_;

 private:
  const RankMemory memory_;
  const UsmMemory device_memory_;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_INTERNAL_RANK_EXCHANGE_H_
