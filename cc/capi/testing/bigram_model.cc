#include "cc/capi/testing/bigram_model.h"

#include <cstdio>
#include <cstring>
#include <random>

namespace pagemill::capi {
namespace {

constexpr int kHidden = 32;

}  // namespace

BigramModel::BigramModel() : weights_(kVocab * kHidden) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  for (float& w : weights_) w = normal(rng);
  for (int t = 0; t < kVocab; ++t) shifted_.push_back((t * 7 + 3) % kVocab);
}

std::string BigramModel::ProgramText() const {
  std::vector<float> both = weights_;
  for (int t = 0; t < kVocab; ++t) {
    const float* row = weights_.data() + shifted_[t] * kHidden;
    both.insert(both.end(), row, row + kHidden);
  }
  const size_t bytes = both.size() * sizeof(float);
  // The cache is never read: its blocks make prefix cache hits possible.
  std::string text = "pagemill-program 3\nfile 0 @\ngroup all full\ncache kv0 all kv kv 1,2\n";
  text += "weight table f32 53,32 0 0\n";
  text += "weight head f32 53,32 0 " + std::to_string(kVocab * kHidden * 4) + "\n";
  text += "input token_ids i32 tokens\ninput logits_rows i32 logits_rows\n";
  text += "value x f32 tokens,32\nvalue last f32 logits_rows,32\nvalue y f32 logits_rows,53\n";
  text += "op embedding token_ids,table -> x scale=1\n";
  text += "op select_rows x,logits_rows -> last\n";
  text += "op linear last,head,- -> y\noutput logits y\n";
  char word[20];
  std::snprintf(word, sizeof(word), "%zu", bytes);
  text += "constants " + std::string(word) + "\n";
  for (float w : both) {
    uint32_t bits;
    std::memcpy(&bits, &w, sizeof(bits));
    for (int i = 0; i < 4; ++i) {  // little endian
      std::snprintf(word, sizeof(word), "%02x", (bits >> (8 * i)) & 0xff);
      text += word;
    }
  }
  return text + "\n";
}

int32_t BigramModel::Next(int32_t token) const {
  int32_t best = 0;
  double best_logit = -1e30;
  for (int t = 0; t < kVocab; ++t) {
    double logit = 0;
    for (int i = 0; i < kHidden; ++i) {
      logit += double{weights_[token * kHidden + i]} * weights_[shifted_[t] * kHidden + i];
    }
    if (logit > best_logit) {
      best_logit = logit;
      best = t;
    }
  }
  return best;
}

}  // namespace pagemill::capi
