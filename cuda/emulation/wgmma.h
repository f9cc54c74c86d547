// File: cuda/emulation/wgmma.h
// The words of cuda/gpu_wgmma.h, for the emulation. Kernels include that header.
//
// Products of a warpgroup read their tiles when the first of its threads awaits them, as late as a
// GPU may, and a tile arrives at once. A barrier at which nothing arrives any more is an error.
#ifndef PAGEMILL_CUDA_EMULATION_WGMMA_H_
#define PAGEMILL_CUDA_EMULATION_WGMMA_H_

#include <cstddef>
#include <cstdint>

#include "cuda/gpu_runtime.h"
#include "cuda/emulation/vocabulary.h"

#define PAGEMILL_GRID_CONSTANT

namespace pagemill::gpu {

using TileMap = StackOfTiles;

namespace emulation {

// Rounds up to kSharedAlignment.
std::byte* Aligned(std::byte* memory);
void InitPhases(uint64_t* barrier, int arrivals, const Location& where);
void ArriveAt(uint64_t* barrier, int expected_bytes, const Location& where);
void AwaitOver(uint64_t* barrier, uint32_t parity, const Location& where);
void CopyTile(void* to, const TileMap& map, int column, int row, int matrix, uint64_t* barrier,
              const Location& where);

// 64 rows of W, kN rows of X, and sums of a thread.
struct PartOfProduct {
  const std::byte* w;
  const std::byte* x;
  float* sums;
  int rows;  // of X
  ProductType type;
};
void IssueProduct(const PartOfProduct& part, const Location& where);
void CommitIssuedProducts();
void ComputeProducts(size_t under_way, const Location& where);
void StoreFragments(const uint32_t (&pairs)[4], void* row, const Location& where);
bool CountArrival(uint32_t* counter, int warps, const Location& where);

}  // namespace emulation

template <typename T>
T* AlignedShared() {
  return reinterpret_cast<T*>(emulation::Aligned(DynamicShared<std::byte>()));
}

inline void InitBarrier(uint64_t* barrier, int arrivals, Location where = Location::current()) {
  emulation::InitPhases(barrier, arrivals, where);
}
inline void ShowBarriers() {}
inline void Arrive(uint64_t* barrier, Location where = Location::current()) {
  emulation::ArriveAt(barrier, /*expected_bytes=*/0, where);
}
inline void ArriveExpecting(uint64_t* barrier, int bytes, Location where = Location::current()) {
  emulation::ArriveAt(barrier, bytes, where);
}
inline void ArriveWhenCopied(uint64_t* barrier, Location where = Location::current()) {
  CommitCopies();
  WaitCopies<0>();
  Arrive(barrier, where);
}
inline void AwaitPhase(uint64_t* barrier, uint32_t parity, Location where = Location::current()) {
  emulation::AwaitOver(barrier, parity, where);
}

// An error where the driver has one.
inline PAGEMILL_GPU(Error_t) MakeTileMap(const StackOfTiles& of, TileMap& map) {
  const auto is_aligned = [](auto value) { return value % 16 == 0; };
  if (!is_aligned(reinterpret_cast<uintptr_t>(of.data)) || !is_aligned(of.row_bytes) ||
      of.matrix_bytes % of.row_bytes != 0 || of.matrices < 1 || of.rows < 1 || of.columns < 1 ||
      of.tile_rows < 1 || of.tile_rows > 256) {
    return PAGEMILL_GPU(ErrorInvalidValue);
  }
  map = of;
  return PAGEMILL_GPU(Success);
}
inline void LoadTile(void* to, const TileMap& map, int column, int row, int matrix,
                     uint64_t* barrier, Location where = Location::current()) {
  emulation::CopyTile(to, map, column, row, matrix, barrier, where);
}

inline void ShowProducts() {}

template <int kN, int kWarpgroups, ProductType kType = ProductType::kBf16, int kParts>
void StartProduct(const void* w, const void* x, int warpgroup, float (&sums)[kParts][kN / 2],
                  Location where = Location::current()) {
  static_assert(kN % 8 == 0);
  for (int part = 0; part < kParts; ++part) {
    const int first = (part * kWarpgroups + warpgroup) * kProductRows;
    emulation::IssueProduct({static_cast<const std::byte*>(w) + first * kTileRowBytes,
                             static_cast<const std::byte*>(x), sums[part], kN, kType},
                            where);
  }
}
inline void CommitProducts() { emulation::CommitIssuedProducts(); }
template <int kUnderWay, int kParts, int kSums>
void AwaitProducts(float (&)[kParts][kSums], Location where = Location::current()) {
  emulation::ComputeProducts(kUnderWay, where);
}

template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

inline void StoreTransposed(const uint32_t (&pairs)[4], void* row,
                            Location where = Location::current()) {
  emulation::StoreFragments(pairs, row, where);
}

inline bool CountWarp(uint32_t* counter, int warps, Location where = Location::current()) {
  return emulation::CountArrival(counter, warps, where);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_EMULATION_WGMMA_H_
