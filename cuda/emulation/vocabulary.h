// File: cuda/emulation/vocabulary.h
// The vocabulary of cuda/gpu_vendor.h, for the emulation. Kernels include that header.
#ifndef PAGEMILL_CUDA_EMULATION_VOCABULARY_H_
#define PAGEMILL_CUDA_EMULATION_VOCABULARY_H_

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"
#include "cuda/emulation/block.h"

#define PAGEMILL_KERNEL inline void
#define PAGEMILL_KERNEL_OF(threads, blocks) inline void
#define PAGEMILL_DEVICE inline
#define PAGEMILL_UNROLL
#define PAGEMILL_SHARED(type, name)                                                          \
  static thread_local ::pagemill::gpu::emulation::SharedVariable<std::type_identity_t<type>> \
      name##_of;                                                                             \
  auto& name = name##_of.Get()

namespace pagemill::gpu {

using Dim = emulation::Dim;
using LaneMask = uint64_t;
using emulation::Location;

inline Dim ThreadIndex() { return emulation::CurrentBlock().thread().index; }
inline Dim BlockIndex() { return emulation::CurrentBlock().index(); }
inline Dim BlockSize() { return emulation::CurrentBlock().options().block; }
inline Dim GridSize() { return emulation::CurrentBlock().options().grid; }
inline int WarpLanes() { return emulation::CurrentBlock().options().warp_lanes; }
inline int Lane() { return emulation::CurrentBlock().lane(); }
inline int Warp() { return emulation::CurrentBlock().warp(); }
inline LaneMask AllLanes() { return ~uint64_t{0} >> (64 - WarpLanes()); }

template <typename T>
T* DynamicShared() {
  return reinterpret_cast<T*>(emulation::CurrentBlock().dynamic_shared());
}

inline void SyncBlock(Location where = Location::current()) {
  emulation::CurrentBlock().WaitForBlock(where);
}
inline void SyncWarp(LaneMask mask, Location where = Location::current()) {
  emulation::CurrentBlock().WaitForWarp(mask, where);
}

namespace emulation {

// What the lanes of a warp have handed out.
class Exchanged {
 public:
  Exchanged(const Block& block, size_t slot) : block_(block), slot_(slot) {}

  template <typename T>
  T By(int lane) const {
    T value;
    std::memcpy(&value, block_.LaneOfWarp(lane).exchanged[slot_], sizeof(T));
    return value;
  }

 private:
  const Block& block_;
  const size_t slot_;
};

// Gives `value` to the warp, calls read() once all lanes of `mask` did, and returns its result.
template <typename T, typename Read>
auto Exchange(LaneMask mask, const T& value, const Location& where, Read read) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxExchangeBytes);
  Block& block = CurrentBlock();
  const bool whole = mask == AllLanes();
  const size_t slot = whole ? block.thread().num_whole_exchanges++ % 2 : 2;
  std::memcpy(block.thread().exchanged[slot], &value, sizeof(T));
  block.WaitForWarp(mask, where);
  auto result = read(Exchanged(block, slot));
  if (!whole) block.WaitForWarp(mask, where);  // the others have read
  return result;
}

// Gives `value` to the warp and returns what compute(lanes, result) makes of all lanes' values,
// once for all of them.
template <typename Result, typename T, typename Compute>
const Result& ComputeOnce(const T& value, const Location& where, Compute compute) {
  static_assert(std::is_trivially_copyable_v<Result> && sizeof(Result) <= kMaxResultBytes);
  return *Exchange(AllLanes(), value, where, [&](const Exchanged& lanes) {
    WarpResult& shared = CurrentBlock().result();
    Result* const result = reinterpret_cast<Result*>(shared.bytes);
    const uint64_t exchange = CurrentBlock().thread().num_whole_exchanges;
    if (std::exchange(shared.exchange, exchange) != exchange) compute(lanes, *result);
    return result;
  });
}

// Lands all groups of copies but the last `under_way`.
void LandCopies(size_t under_way);
void IssueCopy(void* to, const void* from, size_t bytes, const Location& where);
void CommitIssuedCopies();
void MultiplyFragments(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const Location& where);
void MultiplyFragments(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const Location& where);
void LoadFragments(uint32_t (&r)[4], const void* row, const Location& where);

}  // namespace emulation

template <typename T>
T Shuffle(LaneMask mask, T value, int source, Location where = Location::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return emulation::Exchange(mask, value, where, [&](const emulation::Exchanged& lanes) {
    if (source < 0 || source >= WarpLanes() || !(mask >> source & 1)) {
      emulation::CurrentBlock().Fail("a shuffle reads from a lane that is not in its mask", where);
    }
    return lanes.By<T>(source);
  });
}
template <typename T>
T ShuffleXor(LaneMask mask, T value, int bits, Location where = Location::current()) {
  return Shuffle(mask, value, Lane() ^ bits, where);
}
inline LaneMask Ballot(LaneMask mask, bool predicate, Location where = Location::current()) {
  const auto collect = [mask](const emulation::Exchanged& lanes, LaneMask& result) {
    result = 0;
    for (int lane = 0; lane < WarpLanes(); ++lane) {
      if (mask >> lane & 1 && lanes.By<bool>(lane)) {
        result |= LaneMask{1} << lane;
      }
    }
  };
  if (mask == AllLanes()) return emulation::ComputeOnce<LaneMask>(predicate, where, collect);
  return emulation::Exchange(mask, predicate, where, [&](const emulation::Exchanged& lanes) {
    LaneMask result;
    collect(lanes, result);
    return result;
  });
}

// Threads switch at the calls of this vocabulary only.
inline void AtomicAdd(uint64_t* to, uint64_t value) { *to += value; }

// A store is seen as early as possible, before other threads of the block go on, and a load sees as
// late as possible, when they have: this finds missing barriers on either side.
inline uint64_t LoadAcquire(const uint64_t* from, Location where = Location::current()) {
  emulation::CurrentBlock().WaitForPeers(where);
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline void StoreRelease(uint64_t* to, uint64_t value, Location where = Location::current()) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
  emulation::CurrentBlock().LetPeersRun(where);
}
inline uint64_t Nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

inline void LetNextBegin() {}
inline void AwaitInputs() { emulation::CurrentBlock().thread().has_inputs = true; }
inline void PrefetchLine(const void* from) { (void)*static_cast<const volatile char*>(from); }

inline int CountBits(LaneMask mask) { return std::popcount(mask); }

inline void CopyAsync16(void* to, const void* from, Location where = Location::current()) {
  emulation::IssueCopy(to, from, 16, where);
}
inline void CopyAsync4(void* to, const void* from, Location where = Location::current()) {
  emulation::IssueCopy(to, from, 4, where);
}
inline void CommitCopies() { emulation::CommitIssuedCopies(); }
template <int N>
void WaitCopies() {
  emulation::LandCopies(N);
}

inline constexpr bool kHasMma = true;
inline void Mma16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       Location where = Location::current()) {
  emulation::MultiplyFragments(c, a, b, where);
}
inline void LoadTransposed(uint32_t (&r)[4], const void* row,
                           Location where = Location::current()) {
  emulation::LoadFragments(r, row, where);
}

inline void Mma16x8x32(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       Location where = Location::current()) {
  emulation::MultiplyFragments(c, a, b, where);
}

inline float BitsToFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t FloatToBits(float value) { return std::bit_cast<uint32_t>(value); }

inline uint16_t FloatToBFloat16Bits(float value) { return FloatToBf16(value); }
inline uint32_t PackBFloat16(float low, float high) {
  return FloatToBf16(low) | static_cast<uint32_t>(FloatToBf16(high)) << 16;
}
inline uint32_t WithByte(uint32_t above, uint32_t word, int i) {
  return (above & ~0xffu) | (word >> 8 * i & 0xffu);
}
inline uint16_t FloatToHalfBits(float value) { return FloatToF16(value); }
inline float HalfBitsToFloat(uint16_t bits) { return F16ToFloat(bits); }

struct FloatPair {
  float low, high;
};
inline FloatPair Float8PairToFloats(uint16_t bits) {
  return {F8E4M3ToFloat(static_cast<uint8_t>(bits)), F8E4M3ToFloat(static_cast<uint8_t>(bits >> 8))};
}

inline uint32_t PackFloat8(float a, float b, float c, float d) {
  return uint32_t{FloatToF8E4M3(a)} | uint32_t{FloatToF8E4M3(b)} << 8 |
         uint32_t{FloatToF8E4M3(c)} << 16 | uint32_t{FloatToF8E4M3(d)} << 24;
}

inline float RoundedProduct(float a, float b) { return a * b; }
inline float Exp(float value) { return std::exp(value); }
inline float InverseSqrt(float value) { return 1 / std::sqrt(value); }

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_EMULATION_VOCABULARY_H_
