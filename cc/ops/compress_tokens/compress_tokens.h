// File: cc/ops/compress_tokens/compress_tokens.h
// Compresses each m tokens of a request to one vector, for a cache with a row for m tokens
// (latent_write/latent_cache.h). Windows are the tokens [w m, (w + 1) m) of a request. In a window,
// each channel c of a part s has a weighted sum of its x, whose weights are a softmax over tokens:
//
//   z[t, s, c] = gate[t, s, c] + bias[p mod m, s, c]          p: the position of token t
//   y[t, c]    = sum_i e^z[i, s, c] x[i, s, c] / sum_i e^z[i, s, c]    if t is the last of a window
//
// With one part, the sums are over the tokens i of the window. With two, they are over part 1 of
// the window's tokens and part 0 of the tokens of the window before: neighbouring windows overlap.
//
//   inputs   x, gate  act [T, ...]    rows of S C elements, S = 1 or 2 parts
//            bias     f32 [m, S C]
//            state    f32 [pages, S, 3, C]  read and written as state_pages.h says: of each part
//                                     the largest z, and the two sums relative to it
//   outputs  y        act [T, C]      zeros for tokens that are not the last of a window
//   batch    query_start, seq_lens, block_table, block_size
//   aliasing none
//
// Tokens are added one after the other, so the bits of y and of the state do not depend on how a
// request is divided into steps, or on other requests.
//
// Error bound: 3e-7 (2 + n) max |x| for n tokens in a sum: each may rescale the sums, which rounds
// them and multiplies with an e^x of 2e-7.
//
// Source: DeepSeek-V4, sections 2.3.1 (two parts) and 2.3.2 (one part).
//
// Kernels: "portable", "reference" (in double between two states).
#ifndef PAGEMILL_CC_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_H_
#define PAGEMILL_CC_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

struct CompressTokensArgs {
  TensorView x, gate, bias, state, y;
  const BatchView* batch = nullptr;
  int64_t window = 0;  // m
  int64_t parts = 0;
  int64_t channels = 0;

  // The position of row `row` of the step, which is of `request`.
  int64_t PositionOf(int64_t request, int64_t row) const {
    return batch->seq_lens[request] - batch->query_start[request + 1] + row;
  }
  int64_t last_part() const { return parts - 1; }  // whose sums give y
};

CompressTokensArgs ToCompressTokensArgs(const OpCall& call);
const OpDefinition& CompressTokensOp();

void CompressTokensReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_H_
