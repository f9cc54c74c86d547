// File: cuda/ops/attention/pieces.h
// Rows of keys and values that the threads of a block copy to shared memory, in bf16, a piece at a
// time.
//
//   ForPieces(kKeys, size / kPiece, kThreads, [&](int row, int piece) {
//     CopyPiece(exists ? from + piece * kPiece : nullptr,
//               to + row * (size + kRowPadding) + piece * kPiece);
//   });
//   CommitCopies();
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_PIECES_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_PIECES_H_

#include <cstdint>
#include <type_traits>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Elements that are copied together.
inline constexpr int kPiece = 8;

// Rows of shared memory begin 4 banks after the one before, so that eight are read at once.
inline constexpr int kRowPadding = 8;

// A piece as bf16; zeros if `from` is null.
template <typename C>
PAGEMILL_DEVICE void CopyPiece(const C* from, BFloat16* to) {
  using Piece = Vector<BFloat16, kPiece>;
  if (from == nullptr) {
    *reinterpret_cast<Piece*>(to) = {};
  } else if constexpr (std::is_same_v<C, BFloat16>) {
    CopyAsync16(to, from);
  } else {
    const auto read = *reinterpret_cast<const Vector<C, kPiece>*>(from);
    Piece piece;
    PAGEMILL_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      piece.values[i] = FromFloat<BFloat16>(ToFloat(read.values[i]));
    }
    *reinterpret_cast<Piece*>(to) = piece;
  }
}

// Calls body(row, piece) once for each piece of each row, divided among the block's `threads`
// threads. No division in the loop.
template <typename Body>
PAGEMILL_DEVICE void ForPieces(int rows, int pieces, int threads, const Body& body) {
  int row = static_cast<int>(ThreadIndex().x) / pieces;
  int piece = static_cast<int>(ThreadIndex().x) % pieces;
  while (row < rows) {
    body(row, piece);
    row += threads / pieces;
    piece += threads % pieces;
    if (piece < pieces) continue;
    piece -= pieces;
    ++row;
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_PIECES_H_
