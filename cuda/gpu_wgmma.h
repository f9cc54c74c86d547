// File: cuda/gpu_wgmma.h
// Further words for kernels of NVIDIA GPUs of compute capability 9.0 (Hopper) alone: products out of
// shared memory by four warps (wgmma), tiles of matrices copied by the unit for it (TMA), and
// barriers that copies arrive at. nvcc has them by CUTLASS's headers, and the emulation has them,
// too.
//
//   T*   AlignedShared<T>()            dynamic shared memory aligned to kSharedAlignment, of which
//                                      the launch gives that much more
//   const PAGEMILL_GRID_CONSTANT P p   the parameter of a kernel, with TileMaps
//
// Barriers are words of shared memory with phases, of parity 0, 1, 0, ... A phase is over when
// `arrivals` came and all expected bytes were copied.
//
//   void InitBarrier(barrier, arrivals)
//                                      by one thread, which then calls ShowBarriers(); a
//                                      SyncBlock() behind that lets others use them
//   void Arrive(barrier)
//   void ArriveExpecting(barrier, bytes)
//                                      arrives, and has the phase wait for bytes of LoadTile()
//   void ArriveWhenCopied(barrier)     arrives when all CopyAsync16() of this thread are done
//   void AwaitPhase(barrier, parity)   returns when the phase of this parity is over; one before
//                                      the first has parity 1 and is over
//
// A tile has rows of kTileRowBytes, one behind the other from a multiple of kSharedAlignment on, and
// TilePiece(row, piece) says where 16 bytes of a row lie.
//
//   Error_t MakeTileMap(stack, map)    on the host: tiles of a stack of matrices
//   void LoadTile(to, map, column, row, matrix, barrier)
//                                      by one thread: copies the tile that begins there, with zeros
//                                      outside of the matrix; its bytes count at the barrier
//
// Products are those of a warpgroup, threads 128 * i to 128 * i + 127, which call these together.
//
//   void ShowProducts()                what other threads stored or copied, and were awaited, is
//                                      seen by products
//   void StartProduct<N, warpgroups, type>(w, x, warpgroup, sums)
//                                      adds W times X^T to sums [parts][N / 2], which are then used
//                                      by nothing else until AwaitProducts(): ptxas moves them
//                                      otherwise. W has 64 rows of tiles for each part and
//                                      warpgroup, and X N, a multiple of 8. Until it is over both
//                                      tiles stay. The type is kBf16 unless it is named; products
//                                      of kF8E4M3 are added with 13 bits below the largest of them
//   void CommitProducts()              those started since the last call become a group
//   void AwaitProducts<N>(sums)        returns when N groups are under way
//   void GiveRegisters<N>()            a warpgroup has N registers a thread from now on, with less
//   void TakeRegisters<N>()            or with more than before
//
// With g = Lane() / 4, t = Lane() % 4, sum 4 * j + i of a part is of row
// 64 * (part * warpgroups + warpgroup) + 16 * (Warp() % 4) + g + 8 * (i / 2) of W, and of row
// 8 * j + 2 * t + i % 2 of X.
//
//   void StoreTransposed(pairs, row)   the reverse of LoadTransposed (gpu_vendor.h): pair i of a
//                                      lane holds, of matrix i, columns 2 * t and the next of row
//                                      g. Lane 8 * i + j passes where column j of matrix i goes: 16
//                                      bytes of shared memory, aligned
//   bool CountWarp(counter, warps)     called by a whole warp: true in the last of `warps` warps of
//                                      a grid, which sees what the others stored before. The word,
//                                      in global memory, is 0 before the first and behind the last
#ifndef PAGEMILL_CUDA_GPU_WGMMA_H_
#define PAGEMILL_CUDA_GPU_WGMMA_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int kSharedAlignment = 1024;
inline constexpr int kTileRowBytes = 128;
inline constexpr int kTilePieces = kTileRowBytes / 16;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kProductRows = 64;  // of W
inline constexpr int64_t kMostSharedBytes = 227 << 10;  // of a block, on these GPUs

// On the host: true for GPUs that have these words.
inline bool HasWgmma(const device::GpuCapabilities& gpu) {
  return gpu.compute_major == 9 && gpu.compute_minor == 0;
}

// Bytes from the beginning of a tile. Both units call this order the swizzle of 128 bytes.
PAGEMILL_DEVICE int TilePiece(int row, int piece) {
  return row * kTileRowBytes + (piece ^ row % 8) * 16;
}

// What products multiply.
enum class ProductType { kBf16, kF8E4M3 };

constexpr int ElementBytes(ProductType type) { return type == ProductType::kBf16 ? 2 : 1; }

// [matrices, rows, columns] in memory, and the rows of a tile: up to 256. A row has a multiple of
// 16 bytes, and a matrix whole rows.
struct StackOfTiles {
  const void* data;
  ProductType type;
  int64_t matrices, rows, columns;
  int64_t matrix_bytes, row_bytes;
  int tile_rows;
};

}  // namespace pagemill::gpu

#if defined(__CUDACC__)
#include "cuda/internal/nvcc_wgmma.h"
#else
#include "cuda/emulation/wgmma.h"
#endif

#endif  // PAGEMILL_CUDA_GPU_WGMMA_H_
