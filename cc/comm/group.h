// File: cc/comm/group.h
// The interface of collectives between the ranks of a group, for any transport, and the groups of a
// rank, one for each axis along which ranks divide the work.
//
//   const comm::Groups groups = world->groups();                    // shared_memory_world.h
//   if (comm::Group* tensor = groups.at(comm::Axis::kTensor)) {     // null: this rank is alone
//     PAGEMILL_RETURN_IF_ERROR(tensor->AllReduce(DType::kF32, x, x, tokens * hidden));
//   }
//
// Every rank of a group makes the same calls with the same sizes in the same order. A rank without
// data still takes part: an all-reduce of 0 elements is a call, and in calls with a size per rank
// some sizes may be 0.
//
// Ownership: operands are the caller's. Thread safety: one thread at a time. A call returns when
// its result is complete.
#ifndef PAGEMILL_CC_COMM_GROUP_H_
#define PAGEMILL_CC_COMM_GROUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/tensor/dtype.h"

namespace pagemill::comm {

inline constexpr int32_t kMaxRanks = 64;  // in a group, and in total

// What the ranks of a group divide. The numbers are the attribute `axis` of collectives in a
// program.
enum class Axis : uint8_t {
  kTensor = 0,    // each layer's matrices
  kPipeline = 1,  // the layers
  kData = 2,      // the requests
  kExpert = 3,    // the experts of a layer
};
inline constexpr std::array<Axis, 4> kAxes = {Axis::kTensor, Axis::kPipeline, Axis::kData,
                                              Axis::kExpert};

// One call as data: the argument of an implementation of Group. Unused fields keep their defaults;
// in a group of n ranks:
//
//   kind            in                      out                       sizes
//   kAllReduce      count elements          count elements            count
//   kReduceScatter  sum(counts) elements    counts[rank] elements     counts[n]
//   kAllGather      [rows, counts[rank]]    [rows, sum(counts)]       count = rows, counts[n] bytes
//   kAllToAll       sum(counts) bytes       sum(out_counts) bytes     counts[n], out_counts[n]
//   kBroadcast      count bytes of `peer`   count bytes of the others count
//   kSend           count bytes                                       count, `peer` = the receiver
//   kReceive                                count bytes               count, `peer` = the sender
struct Collective {
  enum class Kind : uint8_t {
    kAllReduce,
    kReduceScatter,
    kAllGather,
    kAllToAll,
    kBroadcast,
    kSend,
    kReceive,
  };

  Kind kind = Kind::kAllReduce;
  DType dtype = DType::kU8;  // of summed elements; other data is bytes
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  int64_t count = 0;
  std::span<const int64_t> counts = {};
  std::span<const int64_t> out_counts = {};
  int32_t peer = 0;
};

// An implementation:
//  1. does what the table above and the comments of the calls specify, for every size including 0,
//     and for operands that are only as aligned as their elements;
//  2. adds in an order that depends only on the sizes and the number of ranks: a call gives the
//     same bits every time, and all ranks of an all-reduce get the same bits;
//  3. adds bf16 and f16 in f32 and rounds each sum once, to nearest even; i32 wraps around;
//  4. does not let a rank wait forever for one that has died or left or, in a call of all ranks,
//     makes another call of all ranks: the call returns the reason, status() keeps it, and every
//     peer gets an error too (a receiver waits for a message that is never sent as long as its
//     sender lives);
//  5. ends all groups of a rank together: after one has failed, the rank sends no data to another,
//     which would take it for a result.
// group_conformance.h checks 1 to 3.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int32_t rank() const { return rank_; }
  int32_t num_ranks() const { return num_ranks_; }

  // out[i] = the sum over all ranks of in[i]. f32, bf16, f16 or i32. `out` may be `in`.
  Status AllReduce(DType dtype, const void* in, void* out, int64_t count);

  // As AllReduce, but each rank gets a part of the sums: the first counts[0] are for rank 0, the
  // next counts[1] for rank 1. `out` must not overlap `in`.
  Status ReduceScatter(DType dtype, const void* in, void* out, std::span<const int64_t> counts);

  // Concatenates columns: `in` [rows, widths[rank]] of each rank becomes columns of `out` [rows,
  // sum of widths], in rank order. Both dense; widths in bytes. With rows = 1 it concatenates data
  // of different lengths, such as the rows of data-parallel ranks. `out` must not overlap `in`.
  Status AllGather(const void* in, void* out, int64_t rows, std::span<const int64_t> widths);

  // `in` has in_bytes[q] bytes for each rank q; `out` receives out_bytes[q] from it, in rank order.
  // out_bytes[q] is rank q's in_bytes[rank]. `out` must not overlap `in`.
  Status AllToAll(const void* in, std::span<const int64_t> in_bytes, void* out,
                  std::span<const int64_t> out_bytes);

  // Copies `data` of rank `root` to every rank. The root may return before others have it.
  Status Broadcast(std::span<std::byte> data, int32_t root);

  // To and from one other rank; ranks outside the pair make no call. Messages of a pair arrive in
  // order, independent of the other direction. A small message may be sent before the receiver
  // calls Receive; a large one waits for it, so two ranks that both send first may wait forever.
  Status Send(std::span<const std::byte> data, int32_t to);
  Status Receive(std::span<std::byte> data, int32_t from);

  // Any of the calls above.
  Status Execute(const Collective& call);

  // OK, or the reason why the group has ended, which every later call returns.
  virtual const Status& status() const = 0;

  // Ends the group for every rank, for a rank that cannot continue. Idempotent.
  virtual void Leave() = 0;

 protected:
  Group(int32_t rank, int32_t num_ranks) : rank_(rank), num_ranks_(num_ranks) {}

 private:
  // Only called if the group has not ended and the sizes and ranks of `call` are in range.
  virtual Status Run(const Collective& call) = 0;

  const int32_t rank_;
  const int32_t num_ranks_;
};

// The groups of one rank. Copies share the groups.
class Groups {
 public:
  // Null: the rank is alone along this axis.
  Group* at(Axis axis) const { return groups_[static_cast<size_t>(axis)].get(); }
  void Set(Axis axis, std::shared_ptr<Group> group) {
    groups_[static_cast<size_t>(axis)] = std::move(group);
  }

  // OK, or the reason why one of them has ended.
  Status status() const;

 private:
  std::array<std::shared_ptr<Group>, kAxes.size()> groups_;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_GROUP_H_
