#include "cc/comm/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "cc/comm/futex.h"
#include "cc/device/spin_until.h"

// How it works. Every call is cut into pieces, numbered alike on all ranks. A rank that gives data
// for piece p writes it to its slot p % 2, then raises `begun` to p with release order; a rank that
// takes it waits, with acquire order, for `begun` >= p, so it sees the data.
//
// Writing slot p % 2 again for piece p + 2 must not overtake a reader of piece p. `begun` >= p + 1
// of a rank says that it has read all it wanted of piece p (its reads come before its release), so
// before piece p + 2 a rank makes sure that everybody has begun p + 1. After an all-reduce or an
// all-gather it knows that already: one wait per piece. After a broadcast, where only the root is
// waited for, it may have to wait here.
//
// Sleeping is Dekker's pattern, hence sequentially consistent: a sleeper raises `sleepers`, then
// looks at `begun`; a rank raises `begun`, then looks at `sleepers`.
namespace pagemill::comm {
namespace {

constexpr uint64_t kAllReduce = 1, kAllGather = 2, kBroadcast = 3;

// How often a sleeper looks whether its peers are alive.
constexpr std::chrono::milliseconds kLivenessInterval{20};

// out = the sum of `parts` in their order. `out` may be one of them.
void SumInOrder(std::span<const float* const> parts, std::span<float> out) {
  constexpr size_t kBlock = 64;
  float sum[kBlock];
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, out.size() - begin);
    std::memcpy(sum, parts[0] + begin, size * sizeof(float));
    for (const float* part : parts.subspan(1)) {
      if (size == kBlock) {
        for (size_t i = 0; i < kBlock; ++i) sum[i] += part[begin + i];
      } else {
        for (size_t i = 0; i < size; ++i) sum[i] += part[begin + i];
      }
    }
    std::memcpy(out.data() + begin, sum, size * sizeof(float));
  }
}

// Elements [begin, end) of a dense [rows, width] go to rows of `out` that are `stride` apart.
void ScatterRows(const float* data, int64_t begin, int64_t end, int64_t width, float* out,
                 int64_t stride) {
  while (begin < end) {
    const int64_t row = begin / width, column = begin % width;
    const int64_t count = std::min(width - column, end - begin);
    std::memcpy(out + row * stride + column, data, static_cast<size_t>(count) * sizeof(float));
    data += count;
    begin += count;
  }
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> Communicator::Join(std::shared_ptr<SharedSegment> segment,
                                                           int32_t rank, const WaitOptions& wait) {
  if (rank < 0 || rank >= segment->num_ranks()) {
    return InvalidArgument("rank is " + std::to_string(rank) + "; a group of " +
                           std::to_string(segment->num_ranks()) + " has ranks from 0");
  }
  RankState& state = segment->state(rank);
  if (state.joined.load(std::memory_order_acquire) != 0) {
    return FailedPrecondition("rank " + std::to_string(rank) + " has joined before");
  }
  std::unique_ptr<Communicator> group(new Communicator(std::move(segment), rank, wait));
  state.process_id = getpid();
  state.joined.store(1, std::memory_order_release);
  return group;
}

Communicator::Communicator(std::shared_ptr<SharedSegment> segment, int32_t rank,
                           const WaitOptions& wait)
    : segment_(std::move(segment)),
      rank_(rank),
      spin_(std::chrono::microseconds(wait.spin_us)),
      piece_(segment_->state(rank).begun.load()),  // where numbers start is the segment's business
      watches_(static_cast<size_t>(segment_->num_ranks())) {}

Communicator::~Communicator() { Leave(); }

void Communicator::Leave() {
  RankState& mine = segment_->state(rank_);
  mine.left.store(1);
  FutexWakeAll(&mine.begun);
  if (status_.ok()) status_ = Unavailable("rank " + std::to_string(rank_) + " has left the group");
}

Status Communicator::Fail(Status status) {
  status_ = std::move(status);
  Leave();
  return status_;
}

Status Communicator::WaitForAll(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    PM_RETURN_IF_ERROR(status_);
    std::string missing;
    for (int32_t r = 0; r < num_ranks(); ++r) {
      if (segment_->state(r).joined.load(std::memory_order_acquire) == 0) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(r);
      }
    }
    if (missing.empty()) return OkStatus();
    if (const int32_t gone = FindGone(); gone >= 0) {
      return Fail(Unavailable("rank " + std::to_string(gone) + " of " +
                              std::to_string(num_ranks()) + " ended before all had joined"));
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return Unavailable("of " + std::to_string(num_ranks()) +
                         " ranks these have not joined: " + missing);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status Communicator::AllReduce(std::span<const float> in, std::span<float> out) {
  PM_CHECK(in.size() == out.size());
  PM_RETURN_IF_ERROR(status_);
  const Call call = {kAllReduce, in.size()};
  const size_t slot = static_cast<size_t>(segment_->slot_bytes()) / sizeof(float);
  const float* parts[kMaxRanks];
  for (size_t begin = 0; begin < in.size(); begin += slot) {
    const std::span<const float> mine = in.subspan(begin, std::min(slot, in.size() - begin));
    PM_ASSIGN_OR_RETURN(const uint32_t piece, NextPiece());
    std::memcpy(segment_->slot(rank_, piece), mine.data(), mine.size_bytes());
    Begin(piece, call);
    for (int32_t r = 0; r < num_ranks(); ++r) {
      PM_RETURN_IF_ERROR(AwaitCall(r, piece, call));
      parts[r] = r == rank_ ? mine.data() : reinterpret_cast<float*>(segment_->slot(r, piece));
    }
    SumInOrder({parts, static_cast<size_t>(num_ranks())}, out.subspan(begin, mine.size()));
  }
  return OkStatus();
}

Status Communicator::AllGather(const float* in, float* out, int64_t rows,
                               std::span<const int64_t> widths) {
  PM_CHECK(static_cast<int32_t>(widths.size()) == num_ranks());
  PM_RETURN_IF_ERROR(status_);
  const int64_t stride = std::accumulate(widths.begin(), widths.end(), int64_t{0});
  const int64_t longest = rows * *std::max_element(widths.begin(), widths.end());
  const Call call = {kAllGather, static_cast<uint64_t>(rows * stride)};
  const int64_t slot = segment_->slot_bytes() / static_cast<int64_t>(sizeof(float));
  for (int64_t begin = 0; begin < longest; begin += slot) {
    const auto end_of = [&](int32_t r) { return std::min(rows * widths[r], begin + slot); };
    PM_ASSIGN_OR_RETURN(const uint32_t piece, NextPiece());
    if (begin < end_of(rank_)) {
      std::memcpy(segment_->slot(rank_, piece), in + begin,
                  static_cast<size_t>(end_of(rank_) - begin) * sizeof(float));
    }
    Begin(piece, call);
    int64_t column = 0;
    for (int32_t r = 0; r < num_ranks(); ++r) {
      PM_RETURN_IF_ERROR(AwaitCall(r, piece, call));
      const float* data =
          r == rank_ ? in + begin : reinterpret_cast<float*>(segment_->slot(r, piece));
      ScatterRows(data, begin, end_of(r), widths[r], out + column, stride);
      column += widths[r];
    }
  }
  return OkStatus();
}

Status Communicator::Broadcast(std::span<std::byte> data, int32_t root) {
  PM_CHECK(root >= 0 && root < num_ranks());
  PM_RETURN_IF_ERROR(status_);
  const Call call = {kBroadcast + static_cast<uint64_t>(root), data.size()};
  const size_t slot = static_cast<size_t>(segment_->slot_bytes());
  for (size_t begin = 0; begin < data.size(); begin += slot) {
    const std::span<std::byte> part = data.subspan(begin, std::min(slot, data.size() - begin));
    PM_ASSIGN_OR_RETURN(const uint32_t piece, NextPiece());
    if (rank_ == root) {
      std::memcpy(segment_->slot(rank_, piece), part.data(), part.size());
      Begin(piece, call);
    } else {
      Begin(piece, call);
      PM_RETURN_IF_ERROR(AwaitCall(root, piece, call));
      std::memcpy(part.data(), segment_->slot(root, piece), part.size());
    }
  }
  return OkStatus();
}

// This rank's slot holds what it gives for `piece`: says so, and wakes who sleeps.
void Communicator::Begin(uint32_t piece, const Call& call) {
  RankState& mine = segment_->state(rank_);
  mine.call[piece & 1] = call.size << 8 | call.kind;
  mine.begun.store(piece);
  if (mine.sleepers.load() > 0) FutexWakeAll(&mine.begun);
}

// The number of the next piece, whose slot and call this rank may now write.
StatusOr<uint32_t> Communicator::NextPiece() {
  for (int32_t r = 0; r < num_ranks(); ++r) {
    if (r != rank_) PM_RETURN_IF_ERROR(Await(r, piece_));
  }
  return ++piece_;
}

Status Communicator::AwaitCall(int32_t peer, uint32_t piece, const Call& call) {
  if (peer == rank_) return OkStatus();
  PM_RETURN_IF_ERROR(Await(peer, piece));
  if (segment_->state(peer).call[piece & 1] == (call.size << 8 | call.kind)) return OkStatus();
  return Fail(Internal("rank " + std::to_string(peer) + " makes another call than rank " +
                       std::to_string(rank_) + " as piece " + std::to_string(piece) +
                       ": their programs or batches differ"));
}

bool Communicator::HasBegun(int32_t peer, uint32_t piece) const {
  // Differences of counters that wrap: ranks are never 2^31 pieces apart.
  const uint32_t begun = segment_->state(peer).begun.load(std::memory_order_acquire);
  return static_cast<int32_t>(begun - piece) >= 0;
}

Status Communicator::Await(int32_t peer, uint32_t piece) {
  if (device::SpinUntil(spin_, [&] { return HasBegun(peer, piece); })) return OkStatus();
  RankState& state = segment_->state(peer);
  state.sleepers.fetch_add(1);
  Status status = Sleep(peer, piece);
  state.sleepers.fetch_sub(1);
  return status;
}

Status Communicator::Sleep(int32_t peer, uint32_t piece) {
  std::atomic<uint32_t>& begun = segment_->state(peer).begun;
  while (true) {
    const uint32_t seen = begun.load();
    if (static_cast<int32_t>(seen - piece) >= 0) return OkStatus();
    FutexWait(&begun, seen, kLivenessInterval);
    // In this order: a peer may begin the piece, and then leave.
    const int32_t gone = FindGone();
    if (HasBegun(peer, piece)) return OkStatus();
    if (gone < 0) continue;
    return Fail(Unavailable("rank " + std::to_string(gone) + " of " + std::to_string(num_ranks()) +
                            " (process " + std::to_string(segment_->state(gone).process_id) +
                            ") has died or left the group"));
  }
}

int32_t Communicator::FindGone() {
  for (int32_t r = 0; r < num_ranks(); ++r) {
    const RankState& state = segment_->state(r);
    if (r == rank_ || state.joined.load(std::memory_order_acquire) == 0) continue;
    if (state.left.load() != 0) return r;
    if (state.process_id == getpid()) continue;  // a thread of this process
    std::unique_ptr<ProcessWatch>& watch = watches_[static_cast<size_t>(r)];
    if (watch == nullptr) watch = std::make_unique<ProcessWatch>(state.process_id);
    if (watch->HasEnded()) return r;
  }
  return -1;
}

void Communicator::CheckIntegrity() const {
  const RankState& mine = segment_->state(rank_);
  PM_CHECK(mine.joined.load() == 1);
  PM_CHECK(mine.process_id == getpid());
  if (!status_.ok()) return;
  PM_CHECK(mine.left.load() == 0);
  PM_CHECK(mine.begun.load() == piece_);
  for (int32_t r = 0; r < num_ranks(); ++r) {
    // A peer is at most one piece behind a wait that has ended, and at most as far ahead.
    const int32_t lead = static_cast<int32_t>(segment_->state(r).begun.load() - piece_);
    PM_CHECK(lead >= -2);
  }
}

}  // namespace pagemill::comm
