// File: cc/examples/embed_engine/bpe.h
// Just enough tokenization for an example: BPE from the vocabulary file that `pagemill export`
// writes. Byte-level vocabularies (GPT-2's kind) split a text into words as GPT-2 does, with digits
// apart (SmolLM2), and take every byte above 127 for a letter: exact for SmolLM2 and ASCII text.
// SentencePiece vocabularies are not split. Real hosts bring their own tokenizer.
//
// The file's first line is "words" (byte-level) or "text" (SentencePiece), the bytes in hex that
// stand before every text, and the ids of the tokens before it, with commas; "-" is none. Then one
// line per token, in id order: the token's bytes in hex, and its rank among merges or
//   -1  merges begin with it: a byte of a byte-level vocabulary, else a character
//   -2  a byte for characters that no token covers
//   -3  not made from text, such as control tokens
#ifndef PAGEMILL_CC_EXAMPLES_EMBED_ENGINE_BPE_H_
#define PAGEMILL_CC_EXAMPLES_EMBED_ENGINE_BPE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::examples {

class Bpe {
 public:
  // kNotFound or kDataLoss name the file and line.
  static StatusOr<Bpe> Load(const std::string& path);

  std::vector<int32_t> Encode(std::string_view text) const;
  // Bytes of one token; perhaps part of a character.
  const std::string& Bytes(int32_t token_id) const { return bytes_[token_id]; }
  int32_t vocab_size() const { return static_cast<int32_t>(bytes_.size()); }

 private:
  Status ReadHeader(std::string_view line);
  void Add(std::string bytes, int32_t rank);
  void EncodeWord(std::string_view word, std::vector<int32_t>& ids) const;

  struct Entry {
    int32_t id;
    int32_t rank;
  };
  bool splits_words_ = true;
  std::string prefix_;                               // stands before every text
  std::vector<int32_t> prefix_ids_;                  // before the tokens of every text
  std::vector<std::string> bytes_;                   // by token id
  std::unordered_map<std::string, Entry> by_bytes_;  // tokens that text is made of
  std::array<int32_t, 256> byte_ids_ = {};           // for what none of them covers, 0 = none
};

}  // namespace pagemill::examples

#endif  // PAGEMILL_CC_EXAMPLES_EMBED_ENGINE_BPE_H_
