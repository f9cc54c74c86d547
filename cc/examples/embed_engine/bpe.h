// File: examples/embed_engine/bpe.h
// Minimal tokenization for an example: BPE with the vocabulary file that `pagemill export` writes.
// For byte-level vocabularies (GPT-2's kind), text is split into words as in GPT-2, with separate
// digits (SmolLM2), and every byte above 127 counts as a letter: exact for SmolLM2 and ASCII text.
// SentencePiece vocabularies are not split. Real hosts use their own tokenizer.
//
// The file's first line is "words" (byte-level) or "text" (SentencePiece), the prefix of every text
// as bytes in hex, and the comma-separated ids of the tokens before it; "-" is none. Then one line
// per token, in id order: the token's bytes in hex, and its rank among merges or
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

#include "pagemill/base/status.h"

namespace pagemill::examples {

class Bpe {
 public:
  // kNotFound or kDataLoss with the file and line.
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
  std::string prefix_;                               // prefix of every text
  std::vector<int32_t> prefix_ids_;                  // ids before the tokens of every text
  std::vector<std::string> bytes_;                   // by token id
  std::unordered_map<std::string, Entry> by_bytes_;  // tokens that text can contain
  std::array<int32_t, 256> byte_ids_ = {};           // for bytes that no token covers, 0 = none
};

}  // namespace pagemill::examples

#endif  // PAGEMILL_CC_EXAMPLES_EMBED_ENGINE_BPE_H_
