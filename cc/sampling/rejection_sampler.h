// File: cc/sampling/rejection_sampler.h
// Speculative sampling at one position: samples the next token given a draft that was drawn from
// another distribution q, and the target's distribution p. For any q the token has distribution p;
// it equals the draft with the largest possible probability, sum(min(p, q)).
//
//   const ops::KeptTokens p = ops::WeighKept(passes, logits, max, params, storage);
//   int32_t token = VerifyDraft(p, {.token_id = 17, .probabilities = q},
//                               {.acceptance = UniformOf(seed, position, Purpose::kAcceptance),
//                                .residual = UniformOf(seed, position, Purpose::kResidual)});
//   bool accepted = token == 17;  // the next draft may be verified at position + 1
//
// The drafter draws with DrawDraft(), which writes q, and UniformOf(..., Purpose::kDraft).
//
// The rule accepts the draft d with probability min(1, p(d) / q(d)), else draws from the residual
// max(p - q, 0), normalized. Source: Leviathan et al., "Fast Inference from Transformers via
// Speculative Decoding", ICML 2023; Chen et al., "Accelerating Large Language Model Decoding with
// Speculative Sampling", 2023.
//
// A draft that was not drawn (from an n-gram, or the most likely token of a draft model) has q = 1
// at the draft. The rule is then: draw from p as if there were no draft, and compare. Such a
// position needs no function of its own, and its token is the one that the same seed gives without
// drafts.
//
// Pure functions, O(tokens that p keeps).
#ifndef PAGEMILL_CC_SAMPLING_REJECTION_SAMPLER_H_
#define PAGEMILL_CC_SAMPLING_REJECTION_SAMPLER_H_

#include <cstdint>
#include <span>

#include "cc/ops/sample/philox.h"
#include "cc/ops/sample/sample.h"

namespace pagemill::sampling {

// Each random number of a request is used for one purpose at one position of its output (the number
// of tokens sampled before), so tokens do not depend on the step or batch that samples them. The
// values are part of the meaning of a seed: changing one changes the tokens of every seed.
enum class Purpose : uint32_t {
  kToken = 0,       // which token of p
  kAcceptance = 1,  // whether the draft is accepted
  kResidual = 2,    // which token replaces it
  kDraft = 3,       // which token of q; used by the drafter
};

// Uniform in [0, 1).
inline double UniformOf(uint64_t seed, int32_t position, Purpose purpose) {
  return ops::PhiloxUniform(seed, static_cast<uint64_t>(position), static_cast<uint32_t>(purpose));
}

struct DrawnDraft {
  int32_t token_id = 0;
  std::span<const float> probabilities;  // q, [vocab_size]; sums to 1
};

struct VerificationNumbers {
  double acceptance = 0.0;  // both uniform in [0, 1), independent of each other and the draft
  double residual = 0.0;
};

// Draws a token of `drafter`, which must keep at least one, and writes its distribution q to all of
// `probabilities` [vocab_size]. `uniform` is in [0, 1).
int32_t DrawDraft(const ops::KeptTokens& drafter, double uniform, std::span<float> probabilities);

// `target` must keep at least one token, all with ids below q's size.
int32_t VerifyDraft(const ops::KeptTokens& target, const DrawnDraft& draft,
                    const VerificationNumbers& numbers);

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_REJECTION_SAMPLER_H_
