// File: cc/ops/state_space_scan/scan_chunk.h
// A chunk of tokens of one head of `state_space_scan`, for each instruction set. Plain data and
// functions only: files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_STATE_SPACE_SCAN_SCAN_CHUNK_H_
#define PAGEMILL_CC_OPS_STATE_SPACE_SCAN_SCAN_CHUNK_H_

#include <cstdint>

namespace pagemill::ops {

// Tokens of a chunk: their B and C stay in the first-level cache while all tiles of a head read
// them.
inline constexpr int64_t kMaxScanTokens = 32;

struct ScanChunk {
  const float* source = nullptr;  // [states, head_dim]; null: zeros
  float* target = nullptr;        // [states, head_dim]; may be source
  const float* x = nullptr;       // [tokens, head_dim], and so on: rows of `row_stride` floats
  const float* b = nullptr;       // [tokens, states]
  const float* c = nullptr;       // [tokens, states]
  float* y = nullptr;             // [tokens, head_dim], rows of `y_stride` floats
  const float* decay = nullptr;   // [tokens]: factor of the state before the token
  const float* step = nullptr;    // [tokens]: dt
  float skip = 0;                 // d
  int64_t tokens = 0;             // at most kMaxScanTokens
  int64_t states = 0;
  int64_t head_dim = 0;
  int64_t row_stride = 0;
  int64_t y_stride = 0;
};

using ScanChunkFunction = void (*)(const ScanChunk& chunk);

void ScanChunkPortable(const ScanChunk& chunk);
void ScanChunkAvx2(const ScanChunk& chunk);
void ScanChunkAvx512(const ScanChunk& chunk);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATE_SPACE_SCAN_SCAN_CHUNK_H_
