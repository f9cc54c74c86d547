// File: cc/comm/testing/fake_group.h
// A group without peers, for tests of callers: it acts as if every rank sent the same data as this
// rank, and records the calls (but not the data). Test code only.
//
//   auto tensor = std::make_shared<testing::FakeGroup>(/*rank=*/1, /*num_ranks=*/4);
//   groups.Set(Axis::kTensor, tensor);
//   ... tensor->calls()[0].count ...
//   tensor->Fail(Unavailable("rank 2 has died"));   // later calls return this
//
// It supports the calls whose result follows from that: all-reduce of f32, all-gather, and
// broadcast by this rank. Others are kUnimplemented.
#ifndef PAGEMILL_CC_COMM_TESTING_FAKE_GROUP_H_
#define PAGEMILL_CC_COMM_TESTING_FAKE_GROUP_H_

#include <cstring>
#include <utility>
#include <vector>

#include "cc/comm/group.h"

namespace pagemill::comm::testing {

class FakeGroup final : public Group {
 public:
  FakeGroup(int32_t rank, int32_t num_ranks) : Group(rank, num_ranks) {}

  const std::vector<Collective>& calls() const { return calls_; }
  void Fail(Status status) { status_ = std::move(status); }

  const Status& status() const override { return status_; }
  void Leave() override {
    if (status_.ok()) status_ = Unavailable("this rank has left the group");
  }

 private:
  Status Run(const Collective& call) override {
    calls_.push_back(call);
    if (call.kind == Collective::Kind::kAllReduce && call.dtype == DType::kF32) {
      const auto* in = reinterpret_cast<const float*>(call.in);
      auto* out = reinterpret_cast<float*>(call.out);
      for (int64_t i = 0; i < call.count; ++i) out[i] = in[i] * static_cast<float>(num_ranks());
      return OkStatus();
    }
    if (call.kind == Collective::Kind::kAllGather) return Gather(call);
    if (call.kind == Collective::Kind::kBroadcast && call.peer == rank()) return OkStatus();
    return Unimplemented("a fake group has no peers to do this with");
  }

  // All widths must equal this rank's.
  Status Gather(const Collective& call) {
    const auto width = static_cast<size_t>(call.counts[static_cast<size_t>(rank())]);
    std::byte* out = call.out;
    for (int64_t row = 0; row < call.count; ++row) {
      for (int32_t r = 0; r < num_ranks(); ++r, out += width) {
        std::memcpy(out, call.in + static_cast<size_t>(row) * width, width);
      }
    }
    return OkStatus();
  }

  std::vector<Collective> calls_;
  Status status_;
};

}  // namespace pagemill::comm::testing

#endif  // PAGEMILL_CC_COMM_TESTING_FAKE_GROUP_H_
