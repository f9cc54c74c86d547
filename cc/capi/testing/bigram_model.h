// File: cc/capi/testing/bigram_model.h
// The smallest model that an engine runs: no attention, a vocabulary of 53 tokens; the next token
// is the one whose row of W has the largest product with the row of the last token. For tests of
// code around a model.
//
//   BigramModel model;
//   std::ofstream(path) << model.ProgramText();
//   ... greedy tokens after t are model.Next(t), model.Next(model.Next(t)), ...
#ifndef PAGEMILL_CC_CAPI_TESTING_BIGRAM_MODEL_H_
#define PAGEMILL_CC_CAPI_TESTING_BIGRAM_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pagemill::capi {

class BigramModel {
 public:
  static constexpr int kVocab = 53;

  BigramModel();

  // W [vocab, hidden] as the embedding, and its rows in shifted order as the head.
  std::string ProgramText() const;
  // Greedy successor.
  int32_t Next(int32_t token) const;

 private:
  std::vector<float> weights_;
  std::vector<int> shifted_;  // without the shift every token would follow itself
};

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_TESTING_BIGRAM_MODEL_H_
