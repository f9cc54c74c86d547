// File: cc/program/testing/tiny_llama.h
// Small llama-like programs with random weights in their constants, for tests of code that runs
// programs. Test code only.
//
//   std::string text = TinyLlamaText({.seed = 1, .weight_dtype = DType::kQ8_0});
#ifndef PAGEMILL_CC_PROGRAM_TESTING_TINY_LLAMA_H_
#define PAGEMILL_CC_PROGRAM_TESTING_TINY_LLAMA_H_

#include <cstdint>
#include <string>

#include "cc/tensor/dtype.h"

namespace pagemill::program::testing {

struct TinyLlamaOptions {
  uint64_t seed = 1;
  DType weight_dtype = DType::kF32;  // of matrices; norms are f32
  int32_t layers = 2;
  int32_t hidden = 64;  // a multiple of the dtype's block size
  int32_t heads = 4;    // hidden / heads is the head's size
  int32_t kv_heads = 2;
  int32_t ffn = 96;  // a multiple of the dtype's block
  int32_t vocab = 83;
  int32_t window = 0;   // of every second layer
  bool pooled = false;  // mean-pooled and normalized instead of logits
  // Takes image embeddings [media_rows, hidden] and grid_positions as inputs; the pairs of a head
  // rotate by its dimensions in turn.
  bool media = false;
  // The part of rank `rank` of a tensor-parallel group. `ranks` divides heads, KV heads and ffn,
  // the latter into whole blocks of the dtype.
  int32_t rank = 0;
  int32_t ranks = 1;
};

// The canonical text that a tracer would write, before rewrites.
std::string TinyLlamaText(const TinyLlamaOptions& options);

}  // namespace pagemill::program::testing

#endif  // PAGEMILL_CC_PROGRAM_TESTING_TINY_LLAMA_H_
