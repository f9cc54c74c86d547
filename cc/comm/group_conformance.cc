#include "cc/comm/group_conformance.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "cc/tensor/float16.h"

namespace pagemill::comm::conformance {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kSumTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI32};

void Append(DType dtype, float value, Bytes* bytes) {
  const auto append = [bytes](auto element) {
    const auto* first = reinterpret_cast<const std::byte*>(&element);
    bytes->insert(bytes->end(), first, first + sizeof(element));
  };
  if (dtype == DType::kF32) append(value);
  if (dtype == DType::kBF16) append(FloatToBf16(value));
  if (dtype == DType::kF16) append(FloatToF16(value));
  if (dtype == DType::kI32) append(static_cast<int32_t>(value));
}

// Element i of rank `rank`'s input to call `call`: a whole number, so small that sums of 64 are
// exact in every type and order.
float Given(int64_t rank, int64_t call, int64_t i) {
  uint64_t bits = static_cast<uint64_t>(rank * 7919 + call * 104729 + i * 31 + 1);
  bits *= 0x9e3779b97f4a7c15;
  return static_cast<float>(bits >> 40) / static_cast<float>(1 << 24) * 6.99f - 3.5f;
}

// Elements [begin, end) of the input of `rank`, or of the sum over `ranks` ranks if there are
// several.
Bytes Elements(DType dtype, int64_t rank, int64_t ranks, int64_t call, int64_t begin, int64_t end) {
  Bytes bytes;
  for (int64_t i = begin; i < end; ++i) {
    float sum = 0;
    for (int64_t r = rank; r < rank + ranks; ++r) sum += std::nearbyint(Given(r, call, i));
    Append(dtype, sum, &bytes);
  }
  return bytes;
}

// The `size` bytes that rank `from` sends to `to`.
Bytes Message(int64_t from, int64_t to, int64_t call, int64_t size) {
  Bytes bytes;
  for (int64_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<std::byte>(from * 101 + to * 53 + call * 17 + i * 7));
  }
  return bytes;
}

void Join(const Bytes& part, Bytes* whole) {
  whole->insert(whole->end(), part.begin(), part.end());
}

class Caller {
 public:
  Caller(Group& group, uint32_t seed)
      : group_(group), rank_(group.rank()), ranks_(group.num_ranks()), shared_(seed) {}

  void Next(int64_t call) {
    call_ = call;
    switch (shared_() % 7) {
      case 0:
        return AllReduce();
      case 1:
        return ReduceScatter();
      case 2:
        return AllGather(static_cast<int64_t>(shared_() % 4));
      case 3:
        return AllGather(1);
      case 4:
        return AllToAll();
      case 5:
        return Broadcast();
      default:
        return PassAround();
    }
  }

 private:
  int64_t Size() { return static_cast<int64_t>(shared_() % 8 == 0 ? 0 : shared_() % 300); }
  DType SumType() { return kSumTypes[shared_() % std::size(kSumTypes)]; }
  void Expect(const Status& status, const Bytes& got, const Bytes& expected, const char* what) {
    ASSERT_TRUE(status.ok()) << what << ": " << status.ToString();
    EXPECT_EQ(got, expected) << what << " " << call_ << " on rank " << rank_ << " of " << ranks_;
  }
  std::vector<int64_t> Sizes() {
    std::vector<int64_t> sizes;
    for (int64_t r = 0; r < ranks_; ++r) sizes.push_back(Size());
    return sizes;
  }

  void AllReduce() {
    const DType dtype = SumType();
    const int64_t size = Size();
    const bool in_place = shared_() % 2 == 0;
    Bytes in = Elements(dtype, rank_, 1, call_, 0, size), out(in.size());
    Bytes& result = in_place ? in : out;
    const Status status = group_.AllReduce(dtype, in.data(), result.data(), size);
    Expect(status, result, Elements(dtype, 0, ranks_, call_, 0, size), "AllReduce");
  }

  void ReduceScatter() {
    const DType dtype = SumType();
    const std::vector<int64_t> counts = Sizes();
    int64_t total = 0, first = 0;
    for (int64_t r = 0; r < ranks_; ++r) {
      if (r == rank_) first = total;
      total += counts[static_cast<size_t>(r)];
    }
    const int64_t mine = counts[static_cast<size_t>(rank_)];
    const Bytes in = Elements(dtype, rank_, 1, call_, 0, total);
    Bytes out(static_cast<size_t>(RowBytes(dtype, mine)));
    const Status status = group_.ReduceScatter(dtype, in.data(), out.data(), counts);
    Expect(status, out, Elements(dtype, 0, ranks_, call_, first, first + mine), "ReduceScatter");
  }

  void AllGather(int64_t rows) {
    const std::vector<int64_t> widths = Sizes();
    Bytes expected;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t r = 0; r < ranks_; ++r) {
        Join(Message(r, row, call_, widths[static_cast<size_t>(r)]), &expected);
      }
    }
    Bytes in, out(expected.size());
    for (int64_t row = 0; row < rows; ++row) {
      Join(Message(rank_, row, call_, widths[static_cast<size_t>(rank_)]), &in);
    }
    const Status status = group_.AllGather(in.data(), out.data(), rows, widths);
    Expect(status, out, expected, "AllGather");
  }

  void AllToAll() {
    std::vector<int64_t> in_bytes, out_bytes;
    Bytes in, expected;
    for (int64_t from = 0; from < ranks_; ++from) {
      for (int64_t to = 0; to < ranks_; ++to) {
        const int64_t size = Size();
        if (from == rank_) in_bytes.push_back(size);
        if (to == rank_) out_bytes.push_back(size);
        if (from == rank_) Join(Message(from, to, call_, size), &in);
        if (to == rank_) Join(Message(from, to, call_, size), &expected);
      }
    }
    Bytes out(expected.size());
    const Status status = group_.AllToAll(in.data(), in_bytes, out.data(), out_bytes);
    Expect(status, out, expected, "AllToAll");
  }

  void Broadcast() {
    const int64_t root = static_cast<int64_t>(shared_()) % ranks_, size = Size();
    Bytes data = Message(rank_, root, call_, size);
    const Status status = group_.Broadcast(data, static_cast<int32_t>(root));
    Expect(status, data, Message(root, root, call_, size), "Broadcast");
  }

  // From rank to rank, as between pipeline stages: the first sends, the others receive and then
  // send.
  void PassAround() {
    const int64_t size = Size(), next = rank_ + 1;
    if (rank_ > 0) {
      Bytes data(static_cast<size_t>(size));
      const Status status = group_.Receive(data, static_cast<int32_t>(rank_ - 1));
      Expect(status, data, Message(rank_ - 1, rank_, call_, size), "Receive");
    }
    if (next == ranks_) return;
    EXPECT_TRUE(group_.Send(Message(rank_, next, call_, size), static_cast<int32_t>(next)).ok());
  }

  Group& group_;
  const int64_t rank_;
  const int64_t ranks_;
  std::minstd_rand shared_;  // the same on all ranks
  int64_t call_ = 0;
};

}  // namespace

void CheckCollectives(Group& group, uint32_t seed, int calls) {
  Caller caller(group, seed);
  std::minstd_rand own(seed + 1 + static_cast<uint32_t>(group.rank()));
  for (int call = 0; call < calls && !::testing::Test::HasFailure(); ++call) {
    if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
    caller.Next(call);
  }
}

void CheckSumsAreRoundedOnce(Group& group) {
  // Half of the last bit of 1: lost if added to 1 and rounded, but the sum of two is not.
  for (const auto& [dtype, half] : {std::pair(DType::kBF16, 0x1p-8f), {DType::kF16, 0x1p-11f}}) {
    Bytes data, expected;
    Append(dtype, group.rank() == 0 ? 1.0f : half, &data);
    Append(dtype, 1.0f + static_cast<float>(group.num_ranks() - 1) * half, &expected);
    ASSERT_TRUE(group.AllReduce(dtype, data.data(), data.data(), 1).ok());
    EXPECT_EQ(data, expected) << Info(dtype).name;
  }
}

}  // namespace pagemill::comm::conformance
