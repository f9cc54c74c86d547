// File: cuda/ops/heads/heads_of_tokens.h
// Launches of a warp for each head of a token, for `kv_write`, `rotary` and the op that is both.
//
//   Launch(stream, HeadsOfTokens(tokens, heads), Kernel, heads, ...);
//
//   PAGEMILL_KERNEL Kernel(int heads, ...) {  // token BlockIndex().x
//     ForHeadsOfWarp(heads, [&](int head) { ... });
//   }
#ifndef PAGEMILL_CUDA_OPS_HEADS_HEADS_OF_TOKENS_H_
#define PAGEMILL_CUDA_OPS_HEADS_HEADS_OF_TOKENS_H_

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr uint32_t kHeadThreads = 256;  // of a block
inline constexpr int64_t kHeadsOfBlock = 8;    // at once, with warps of 32 lanes
inline constexpr int64_t kFewTokens = 128;     // whose blocks alone would not fill a GPU

// Blocks (token, part of its heads): one part if there are many tokens.
inline LaunchShape HeadsOfTokens(int64_t tokens, int64_t heads) {
  const uint32_t parts = tokens <= kFewTokens ? DivideUp(heads, kHeadsOfBlock) : 1;
  return {.blocks = {static_cast<uint32_t>(tokens), parts}, .threads = {kHeadThreads}};
}

// Calls body(head) for the heads of this warp, of `heads`.
template <typename Body>
PAGEMILL_DEVICE void ForHeadsOfWarp(int heads, const Body& body) {
  const int warps = static_cast<int>(kHeadThreads) / WarpLanes();
  const int parts = static_cast<int>(GridSize().y), part = static_cast<int>(BlockIndex().y);
  for (int head = part * warps + Warp(); head < heads; head += parts * warps) body(head);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_HEADS_HEADS_OF_TOKENS_H_
