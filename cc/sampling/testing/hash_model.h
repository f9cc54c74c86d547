// File: cc/sampling/testing/hash_model.h
// Models without weights, for tests of sampling: logits, masks and drafts that are pure functions
// of the tokens so far, and a loop that generates from them through a Sampler, with drafts or
// without.
//
//   HashModel model({.vocab_size = 6});
//   Generations generations(&sampler, &model, {.num_tokens = 20, .max_drafts = 3});
//   generations.Add(request);
//   generations.Run();
//   ... generations.all()[0].outputs
//
// Each step of a generation passes the rows of its drafts to Sampler::Run() and uses its outputs.
#ifndef PAGEMILL_CC_SAMPLING_TESTING_HASH_MODEL_H_
#define PAGEMILL_CC_SAMPLING_TESTING_HASH_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/sampling/sampler.h"
#include "cc/step/request.h"

namespace pagemill::sampling {

struct HashModelOptions {
  int32_t vocab_size = 6;
  uint64_t seed = 1;
  float scale = 1.5f;               // logits are in [-scale, scale]
  float draft_noise = 1.0;          // maximum difference of the draft's logits from the model's
  size_t context_tokens = 1 << 30;  // logits depend on this many tokens: with few, texts repeat
};

class HashModel {
 public:
  explicit HashModel(const HashModelOptions& options) : options_(options) {}
  int32_t vocab_size() const { return options_.vocab_size; }

  // The logits [vocab_size] of the token after `text`.
  std::vector<float> Logits(std::span<const int32_t> text) const;
  std::vector<float> DraftLogits(std::span<const int32_t> text) const;
  // Allows about half of the tokens, at least one; bits beyond the vocabulary are random.
  std::vector<uint32_t> Mask(std::span<const int32_t> text) const;

 private:
  uint64_t HashOf(std::span<const int32_t> text) const;

  HashModelOptions options_;
};

// e^x, normalized.
std::vector<float> Softmax(std::span<const float> logits);

struct GenerateOptions {
  int32_t num_tokens = 8;
  int32_t max_drafts = 0;     // per step; the number is random in [0, max_drafts]
  bool fixed_drafts = false;  // every step has max_drafts
  bool drawn = false;         // true: drafts are drawn from Softmax(DraftLogits());
                              // false: drafts are the most likely tokens of DraftLogits()
  bool masked = false;
  bool by_maxima = false;  // greedy requests that need no more get their tokens from TakeFound()
};

// Request i uses slot i of the sampler; the steps of all requests run together.
class Generations {
 public:
  // `sampler` must have a slot for each request.
  Generations(Sampler* sampler, const HashModel* model, const GenerateOptions& options)
      : sampler_(sampler), model_(model), options_(options) {}

  void Add(std::shared_ptr<const step::Request> request);
  // Runs until each request has options.num_tokens tokens; drops the tokens sampled after that.
  void Run();

  struct Generation {
    std::shared_ptr<const step::Request> request;
    std::vector<int32_t> outputs = {};
    std::vector<step::TokenLogprobs> logprobs = {};
    int32_t drafts = 0;
    int32_t accepted = 0;
  };
  const std::vector<Generation>& all() const { return all_; }

 private:
  struct RowData {
    std::vector<float> logits;
    std::vector<float> draft_probabilities;
    std::vector<uint32_t> mask;
  };
  int32_t NumDrafts(const Generation& generation) const;
  std::vector<int32_t> TextOf(const Generation& generation) const;
  bool FindsTokens(size_t slot) const;
  void TakeFound(size_t slot);
  void AddRows(size_t slot, std::vector<LogitsRow>* rows);
  int32_t Draft(const Generation& generation, std::span<const int32_t> text, int32_t position,
                RowData* data) const;
  void Take(std::span<const LogitsRow> rows, std::span<const RowOutput> outputs);

  Sampler* sampler_;
  const HashModel* model_;
  const GenerateOptions options_;
  std::vector<Generation> all_;
  std::vector<std::unique_ptr<RowData>> data_;  // of the rows of a step
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_TESTING_HASH_MODEL_H_
