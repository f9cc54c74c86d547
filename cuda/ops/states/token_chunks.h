// File: cuda/ops/states/token_chunks.h
// Walks the tokens of a run in chunks of kChunkTokens, whose operands are in shared memory while
// those of the next chunk are on their way from global memory to registers. A team of 32 threads,
// which are part of a warp, prepares a token of each chunk.
//
//   PAGEMILL_SHARED(Token[2][kChunkTokens], chunks);
//   Fetched fetched;  // registers
//   ForEachToken(run.begin, run.end, /*uses=*/true,
//       [&](int32_t row) { fetched = ...; },                         // loads, and waits for none
//       [&](int buffer) { chunks[buffer][Team()] = ...; },           // what was fetched
//       [&](int32_t row, int buffer, int t) { Use(chunks[buffer][t]); });
//
// `row` of a team that has no token in a chunk is `end`, or more: it must not be read. Without
// `uses`, which is the same for a warp, the last function is not called. Every thread of the block,
// which has kStateThreads, calls it, and all have used the last chunk when it returns.
#ifndef PAGEMILL_CUDA_OPS_STATES_TOKEN_CHUNKS_H_
#define PAGEMILL_CUDA_OPS_STATES_TOKEN_CHUNKS_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/states/state_tile.h"

namespace pagemill::gpu {

inline constexpr int kTeamThreads = 32;
inline constexpr int kChunkTokens = kStateThreads / kTeamThreads;

PAGEMILL_DEVICE int Team() { return static_cast<int>(ThreadIndex().x) / kTeamThreads; }
PAGEMILL_DEVICE int ThreadOfTeam() { return static_cast<int>(ThreadIndex().x) % kTeamThreads; }
PAGEMILL_DEVICE bool InFirstHalf() { return ThreadOfTeam() < kTeamThreads / 2; }

// A vector of at most kRows elements in registers of half a team: a thread has every 16th quad.
template <typename T, int kRows>
struct HalfTeamVector {
  static constexpr int kThreads = kTeamThreads / 2;
  static constexpr int kQuads = kRows / 4 / kThreads;

  Vector<T, 4> quads[kQuads] = {};  // zeros behind the vector

  // `aligned`: `from` is a multiple of four elements, and so is `size`.
  PAGEMILL_DEVICE void Load(const T* from, int size, bool aligned) {
    PAGEMILL_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const int first = FirstOf(j);
      if (aligned) {
        if (first < size) quads[j] = reinterpret_cast<const Vector<T, 4>&>(from[first]);
      } else {
        for (int i = 0; i < 4; ++i) {
          if (first + i < size) quads[j].values[i] = from[first + i];
        }
      }
    }
  }

  PAGEMILL_DEVICE float SumOfSquares() const {
    float squares = 0;
    for (const Vector<T, 4>& quad : quads) {
      for (const T& x : quad.values) squares += ToFloat(x) * ToFloat(x);
    }
    return WarpReduce(squares, Sum{}, kThreads);
  }

  PAGEMILL_DEVICE void Store(float factor, StateQuad* to) const {
    PAGEMILL_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      StateQuad quad;
      for (int i = 0; i < 4; ++i) quad.values[i] = ToFloat(quads[j].values[i]) * factor;
      to[FirstOf(j) / 4] = quad;
    }
  }

 private:
  PAGEMILL_DEVICE static int FirstOf(int j) {
    return (ThreadOfTeam() % kThreads + j * kThreads) * 4;
  }
};

template <typename Fetch, typename Put, typename Use>
PAGEMILL_DEVICE void ForEachToken(int32_t begin, int32_t end, bool uses, const Fetch& fetch,
                                  const Put& put, const Use& use) {
  int buffer = 0;
  fetch(begin + Team());
  put(buffer);
  SyncBlock();
  for (int32_t first = begin; first < end; first += kChunkTokens) {
    const int32_t next = first + kChunkTokens;
    if (next < end) fetch(next + Team());
    if (uses && next <= end) {
      PAGEMILL_UNROLL
      for (int t = 0; t < kChunkTokens; ++t) use(first + t, buffer, t);
    } else if (uses) {
      for (int t = 0; first + t < end; ++t) use(first + t, buffer, t);
    }
    buffer = 1 - buffer;
    if (next < end) put(buffer);
    SyncBlock();
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_TOKEN_CHUNKS_H_
