// File: cc/ops/sample/sample.h
// Kernels over one row of fp32 logits [vocab]: the maximum, log-softmax pieces, the top entries,
// and a draw after temperature, min-p, top-k and top-p. Semantics: docs/sampling.md. They run once
// per row after the program, so they are functions; devices use the op ../draw_tokens. The passes
// over whole rows are compiled for several instruction sets; the caller chooses one:
//
//   const RowPasses& passes = ChooseRowPasses(device::DetectCapabilities());
//   const MaxEntry max = ArgMax(passes, logits);
//
// Nothing here allocates: callers pass candidate storage of `vocab` entries. Nothing sorts a row.
// Error bounds against sample_ref.cc: ArgMax and TopEntries are exact; LogSumExp within 2e-6 (fp32
// exponentials, sums of 64 in fp32, those in double); DrawToken picks the same token unless the
// uniform number falls within 1e-6 of the boundary between two tokens, or top_p within 1e-6 of a
// partial sum. The same holds between instruction sets, whose exponentials differ in the last bit.
#ifndef PAGEMILL_CC_OPS_SAMPLE_SAMPLE_H_
#define PAGEMILL_CC_OPS_SAMPLE_SAMPLE_H_

#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/ops/sample/row_passes.h"  // Candidate, MaxEntry

namespace pagemill::ops {

// The fastest passes that the machine can run; deterministic.
const RowPasses& ChooseRowPasses(const device::Capabilities& caps);

// The largest logit. A NaN anywhere in the row, +inf, or a row of -inf only, gives token_id -1.
MaxEntry ArgMax(const RowPasses& passes, std::span<const float> logits);

// log(sum(exp(logits))), `max` being the row's maximum.
double LogSumExp(const RowPasses& passes, std::span<const float> logits, float max,
                 std::span<Candidate> storage);

// Tokens with a strictly larger logit than `logit`, plus one.
int32_t RankOf(const RowPasses& passes, std::span<const float> logits, float logit);

// The `count` largest, descending, ties by lower id, in the first entries of `storage`
// (storage.size() >= logits.size()). Returns min(count, vocab) entries.
std::span<const Candidate> TopEntries(const RowPasses& passes, std::span<const float> logits,
                                      int32_t count, std::span<Candidate> storage);

struct DrawParams {
  float temperature = 1.0f;  // > 0
  float min_weight = 0.0f;   // relative to the most likely token; 0 = off
  int32_t top_k = 0;         // 0 = off
  float top_p = 1.0f;
  double uniform = 0.0;  // [0, 1)
};

// Draws one token. `max` is ArgMax(logits); storage.size() >= logits.size().
int32_t DrawToken(const RowPasses& passes, std::span<const float> logits, const MaxEntry& max,
                  const DrawParams& params, std::span<Candidate> storage);

// The set that DrawToken() draws from.
struct KeptTokens {
  std::span<const Candidate> tokens;  // in the order of ids, with weights in place of logits
  double total = 0.0;                 // of the weights
};

// The tokens that min-p, top-k and top-p leave, in `storage`. `params.uniform` is not used.
KeptTokens WeighKept(const RowPasses& passes, std::span<const float> logits, const MaxEntry& max,
                     const DrawParams& params, std::span<Candidate> storage);

// Reference implementations: full sort and double arithmetic.
namespace reference {
MaxEntry ArgMax(std::span<const float> logits);
double LogSumExp(std::span<const float> logits, float max);
int32_t RankOf(std::span<const float> logits, float logit);
std::span<const Candidate> TopEntries(std::span<const float> logits, int32_t count,
                                      std::span<Candidate> storage);
int32_t DrawToken(std::span<const float> logits, const MaxEntry& max, const DrawParams& params,
                  std::span<Candidate> storage);
}  // namespace reference

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SAMPLE_SAMPLE_H_
