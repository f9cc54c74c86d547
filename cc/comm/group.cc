#include "cc/comm/group.h"

#include <algorithm>

namespace pagemill::comm {
namespace {

using Kind = Collective::Kind;

const std::byte* Bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* Bytes(void* data) { return static_cast<std::byte*>(data); }

bool CanAdd(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kI32;
}

bool AreCounts(std::span<const int64_t> counts, int32_t num_ranks) {
  return static_cast<int32_t>(counts.size()) == num_ranks &&
         std::ranges::all_of(counts, [](int64_t count) { return count >= 0; });
}

// Aborts for a call that violates the interface.
void CheckCall(const Collective& call, int32_t rank, int32_t num_ranks) {
  const bool sums = call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter;
  const bool of_pair = call.kind == Kind::kSend || call.kind == Kind::kReceive;
  const bool by_rank = call.kind == Kind::kReduceScatter || call.kind == Kind::kAllGather ||
                       call.kind == Kind::kAllToAll;
  PAGEMILL_CHECK(call.count >= 0);
  PAGEMILL_CHECK(call.peer >= 0 && call.peer < num_ranks);
  PAGEMILL_CHECK(!sums || CanAdd(call.dtype));
  PAGEMILL_CHECK(!of_pair || call.peer != rank);
  PAGEMILL_CHECK(!by_rank || AreCounts(call.counts, num_ranks));
  if (call.kind != Kind::kAllToAll) return;
  const auto self = static_cast<size_t>(rank);
  PAGEMILL_CHECK(AreCounts(call.out_counts, num_ranks) &&
                 call.counts[self] == call.out_counts[self]);
}

}  // namespace

Status Group::Execute(const Collective& call) {
  CheckCall(call, rank_, num_ranks_);
  PAGEMILL_RETURN_IF_ERROR(status());
  return Run(call);
}

Status Group::AllReduce(DType dtype, const void* in, void* out, int64_t count) {
  return Execute({.kind = Kind::kAllReduce,
                  .dtype = dtype,
                  .in = Bytes(in),
                  .out = Bytes(out),
                  .count = count});
}

Status Group::ReduceScatter(DType dtype, const void* in, void* out,
                            std::span<const int64_t> counts) {
  return Execute({.kind = Kind::kReduceScatter,
                  .dtype = dtype,
                  .in = Bytes(in),
                  .out = Bytes(out),
                  .counts = counts});
}

Status Group::AllGather(const void* in, void* out, int64_t rows, std::span<const int64_t> widths) {
  return Execute({.kind = Kind::kAllGather,
                  .in = Bytes(in),
                  .out = Bytes(out),
                  .count = rows,
                  .counts = widths});
}

Status Group::AllToAll(const void* in, std::span<const int64_t> in_bytes, void* out,
                       std::span<const int64_t> out_bytes) {
  return Execute({.kind = Kind::kAllToAll,
                  .in = Bytes(in),
                  .out = Bytes(out),
                  .counts = in_bytes,
                  .out_counts = out_bytes});
}

Status Group::Broadcast(std::span<std::byte> data, int32_t root) {
  return Execute({.kind = Kind::kBroadcast,
                  .in = data.data(),
                  .out = data.data(),
                  .count = static_cast<int64_t>(data.size()),
                  .peer = root});
}

Status Group::Send(std::span<const std::byte> data, int32_t to) {
  return Execute({.kind = Kind::kSend,
                  .in = data.data(),
                  .count = static_cast<int64_t>(data.size()),
                  .peer = to});
}

Status Group::Receive(std::span<std::byte> data, int32_t from) {
  return Execute({.kind = Kind::kReceive,
                  .out = data.data(),
                  .count = static_cast<int64_t>(data.size()),
                  .peer = from});
}

Status Groups::status() const {
  for (const std::shared_ptr<Group>& group : groups_) {
    if (group != nullptr) PAGEMILL_RETURN_IF_ERROR(group->status());
  }
  return OkStatus();
}

}  // namespace pagemill::comm
