// File: cc/examples/embed_engine/byte_bpe.h
// Just enough tokenization for an example: byte-level BPE of the GPT-2 kind, read from the
// vocabulary file that `pagemill export` writes. Splits words as GPT-2 does, with digits apart
// (SmolLM2), treating every byte above 127 as a letter: exact for ASCII text. Real hosts bring
// their own tokenizer.
//
// The file has one line per token, in id order: the token's bytes in hex ("-" for none), a space,
// and its rank among merges (-1: not made by a merge, such as single bytes and control tokens).
#ifndef PAGEMILL_CC_EXAMPLES_EMBED_ENGINE_BYTE_BPE_H_
#define PAGEMILL_CC_EXAMPLES_EMBED_ENGINE_BYTE_BPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::examples {

class ByteBpe {
 public:
  // kNotFound or kDataLoss name the file and line.
  static StatusOr<ByteBpe> Load(const std::string& path);

  std::vector<int32_t> Encode(std::string_view text) const;
  // Bytes of one token; perhaps part of a character.
  const std::string& Bytes(int32_t token_id) const { return bytes_[token_id]; }
  int32_t vocab_size() const { return static_cast<int32_t>(bytes_.size()); }

 private:
  void EncodeWord(std::string_view word, std::vector<int32_t>& ids) const;

  struct Entry {
    int32_t id;
    int32_t rank;
  };
  std::vector<std::string> bytes_;  // by token id
  std::unordered_map<std::string, Entry>
      by_bytes_;  // tokens made of bytes, control tokens left out
};

}  // namespace pagemill::examples

#endif  // PAGEMILL_CC_EXAMPLES_EMBED_ENGINE_BYTE_BPE_H_
