// File: cc/sampling/watermark/watermark.h
// Marks texts as those of the owner of a key, by the random numbers that tokens are drawn with. The
// number of a token is a function of the key, the tokens in front of it and the token itself; drawn
// is the token whose number, raised to one over its probability, is largest. Without the
// key this draws from the model's distribution; with it, the numbers of a text's tokens are
// found to be too large for chance.
//
//   const Watermark watermark({.key = key});
//   const uint64_t context = watermark.ContextOf(output_token_ids);
//   int32_t token = watermark.Draw(kept, context);
//   ... later, of a text ...
//   std::vector<double> numbers = watermark.NumbersOf(token_ids);  // of others' texts: uniform
//
// Source: Aaronson and Kirchner, "Watermarking GPT Outputs", 2022 (Gumbel-max); the sum of
// -log(1 - number) over n tokens has a gamma distribution of shape n in a text without the mark.
//
// Pure functions. The numbers are part of the meaning of a key: changing them loses marks of texts
// that exist.
#ifndef PAGEMILL_CC_SAMPLING_WATERMARK_WATERMARK_H_
#define PAGEMILL_CC_SAMPLING_WATERMARK_WATERMARK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/ops/sample/sample.h"

namespace pagemill::sampling {

struct WatermarkOptions {
  uint64_t key = 0;            // secret
  int32_t context_tokens = 4;  // at least 1: in front of a token, which its number depends on
};

class Watermark {
 public:
  explicit Watermark(const WatermarkOptions& options) : options_(options) {}

  // True if a text of so many tokens has a context: its first tokens have none, and no mark.
  bool HasContext(size_t num_tokens) const {
    return num_tokens >= static_cast<size_t>(options_.context_tokens);
  }
  // A number for the last tokens of a text that HasContext().
  uint64_t ContextOf(std::span<const int32_t> token_ids) const;
  // The number of a token behind a context, in (0, 1).
  double NumberOf(uint64_t context, int32_t token_id) const;
  // One of the tokens that `kept` has, at least one, by their weights; the lowest id among equals.
  int32_t Draw(const ops::KeptTokens& kept, uint64_t context) const;
  // The numbers of a text's tokens, in order, without those whose context occurred before: only its
  // first token is drawn with the mark.
  std::vector<double> NumbersOf(std::span<const int32_t> token_ids) const;

 private:
  WatermarkOptions options_;
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_WATERMARK_WATERMARK_H_
