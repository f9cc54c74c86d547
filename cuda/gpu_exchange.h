// File: cuda/gpu_exchange.h
// Data that the ranks of a group exchange in a kernel that each of them launches, in the same order
// and with the same grid, of at most kExchangeBlocks blocks:
//
//   PAGEMILL_KERNEL Share(const float* x, float* y, PeerMemory peers) {
//     Exchange exchange(peers);
//     for (int r = 0; r < peers.num_ranks; ++r) {       // sends: thread t to threads t
//       exchange.Outbox<float>(r)[peers.rank * threads + thread] = x[thread];
//     }
//     exchange.Meet();
//     for (int r = 0; ...) y[r * threads + thread] = exchange.Inbox<float>()[r * threads + thread];
//     exchange.Finish();
//   }
//
// A block sees what the blocks of its index have sent, and nothing of others. A kernel may exchange
// data several times: it sends, meets and reads each time.
//
// Memory order. A block that has sent stores the number of the exchange in a word for each rank, by
// StoreRelease() after a SyncBlock(), and waits by LoadAcquire() before another SyncBlock() until
// every rank has stored it: whatever threads of a block have sent is seen by the threads of the
// block of that index on the other rank. Words are in the memory of the rank that waits.
//
// Reuse. Exchanges take the halves of an inbox by turns, so that none needs a second meeting. A
// rank that sends in exchange e + 2 has met all others in e + 1: with all its blocks if that was in
// an earlier kernel, else with this one. A block comes to e + 1 when it has read what e has
// brought; and if e was in an earlier kernel, then all of that kernel was done. So nothing of e is
// still read when e + 2 overwrites it. The number of exchanges so far is in memory, and graphs need
// no change.
#ifndef PAGEMILL_CUDA_GPU_EXCHANGE_H_
#define PAGEMILL_CUDA_GPU_EXCHANGE_H_

#include <cstddef>
#include <cstdint>

#include "cuda/device/peer_group.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

class Exchange {
 public:
  // Every thread of a block of one dimension, of at least kMaxPeers threads, makes one.
  PAGEMILL_DEVICE explicit Exchange(const PeerMemory& peers)
      : peers_(peers),
        epoch_(Epochs()[BlockIndex().x]),
        limit_ns_(Epochs()[kExchangeBlocks] == 0 ? peers.limit_ns : 0) {}

  // What goes to a rank: inbox_bytes, to which each rank writes a part of its own.
  template <typename T>
  PAGEMILL_DEVICE T* Outbox(int rank) const {
    return reinterpret_cast<T*>(BaseOf(rank) + epoch_ % 2 * peers_.inbox_bytes);
  }

  // Waits for the block of this index of every rank. Goes on without one that does not come.
  PAGEMILL_DEVICE void Meet() {
    ++epoch_;
    SyncBlock();
    const int rank = static_cast<int>(ThreadIndex().x);
    if (rank < peers_.num_ranks) {
      StoreRelease(Arrivals(rank) + peers_.rank, epoch_);
      Wait(Arrivals(peers_.rank) + rank);
    }
    SyncBlock();
  }

  // What has come to this rank when all have met.
  template <typename T>
  PAGEMILL_DEVICE const T* Inbox() const {
    return reinterpret_cast<const T*>(BaseOf(peers_.rank) + (epoch_ - 1) % 2 * peers_.inbox_bytes);
  }

  // The last call. Exchanges are counted for all blocks, also those that this kernel does not have.
  PAGEMILL_DEVICE void Finish() const {
    if (ThreadIndex().x == 0) Epochs()[BlockIndex().x] = epoch_;
    if (BlockIndex().x != 0) return;
    for (uint32_t b = GridSize().x + ThreadIndex().x; b < kExchangeBlocks; b += BlockSize().x) {
      Epochs()[b] = epoch_;
    }
  }

 private:
  // A select instead of an index keeps the addresses in registers.
  PAGEMILL_DEVICE std::byte* BaseOf(int rank) const {
    std::byte* base = peers_.bases[0];
    PAGEMILL_UNROLL
    for (int r = 1; r < kMaxPeers; ++r) base = r == rank ? peers_.bases[r] : base;
    return base;
  }
  PAGEMILL_DEVICE uint64_t* WordsOf(int rank) const {
    return reinterpret_cast<uint64_t*>(BaseOf(rank) + 2 * peers_.inbox_bytes);
  }
  // For the block of this index on `rank`.
  PAGEMILL_DEVICE uint64_t* Arrivals(int rank) const {
    return WordsOf(rank) + BlockIndex().x * kMaxPeers;
  }
  PAGEMILL_DEVICE uint64_t* Epochs() const {
    return WordsOf(peers_.rank) + kExchangeBlocks * kMaxPeers;
  }

  PAGEMILL_DEVICE void Wait(const uint64_t* arrival) {
    const uint64_t begin = Nanoseconds();
    while (LoadAcquire(arrival) < epoch_) {
      if (Nanoseconds() - begin < limit_ns_) continue;
      StoreRelease(Epochs() + kExchangeBlocks, 1);  // later kernels do not wait
      StoreRelease(peers_.failed, 1);
      return;
    }
  }

  const PeerMemory& peers_;
  uint64_t epoch_;  // exchanges that the block has come to
  const uint64_t limit_ns_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_EXCHANGE_H_
