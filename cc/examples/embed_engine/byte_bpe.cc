#include "cc/examples/embed_engine/byte_bpe.h"

#include <cctype>
#include <fstream>
#include <limits>

namespace pagemill::examples {
namespace {

bool IsLetter(unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; }
bool IsOther(unsigned char c) { return !IsLetter(c) && !std::isdigit(c) && !std::isspace(c); }

// Length of 's 't 're 've 'm 'll 'd at the start of `text`, or 0.
size_t Contraction(std::string_view text) {
  for (std::string_view c : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(0, c.size()) == c) return c.size();
  }
  return 0;
}

// Length of the next word of `text` (not empty) under GPT-2's rules, digits one by one.
size_t NextWord(std::string_view text) {
  if (const size_t n = Contraction(text)) return n;
  const size_t space = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const auto first = static_cast<unsigned char>(text[space]);
  size_t end = space;
  const auto run = [&](auto belongs) {
    while (end < text.size() && belongs(static_cast<unsigned char>(text[end]))) ++end;
    return end;
  };
  if (std::isdigit(first)) return space == 0 ? 1 : space;  // the space stays alone before a digit
  if (IsLetter(first)) return run(IsLetter);
  if (IsOther(first)) return run(IsOther);
  // White space: all of it at the end of the text, else all but the last, which joins the next
  // word.
  end = 0;
  run([](unsigned char c) { return std::isspace(c) != 0; });
  return end == text.size() || end == 1 ? end : end - 1;
}

int Nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool ParseHex(std::string_view hex, std::string& bytes) {
  if (hex.size() % 2 != 0) return false;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = Nibble(hex[i]), low = Nibble(hex[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return true;
}

}  // namespace

StatusOr<ByteBpe> ByteBpe::Load(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NotFound("cannot read the vocabulary file '" + path + "'");
  ByteBpe bpe;
  std::string hex;
  int32_t rank = 0;
  while (in >> hex >> rank) {
    const auto id = static_cast<int32_t>(bpe.bytes_.size());
    std::string bytes;
    if (hex != "-" && !ParseHex(hex, bytes)) {
      return DataLoss(path + " line " + std::to_string(id + 1) + ": '" + hex + "' is not hex");
    }
    if (rank >= 0 || bytes.size() == 1) bpe.by_bytes_.emplace(bytes, Entry{id, rank});
    bpe.bytes_.push_back(std::move(bytes));
  }
  if (bpe.bytes_.empty() || !in.eof()) return DataLoss(path + ": not a vocabulary file");
  return bpe;
}

void ByteBpe::EncodeWord(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<std::string> parts;
  for (char c : word) parts.emplace_back(1, c);
  while (parts.size() > 1) {
    int32_t best_rank = std::numeric_limits<int32_t>::max();
    size_t best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = by_bytes_.find(parts[i] + parts[i + 1]);
      if (it != by_bytes_.end() && it->second.rank >= 0 && it->second.rank < best_rank) {
        best_rank = it->second.rank;
        best = i;
      }
    }
    if (best_rank == std::numeric_limits<int32_t>::max()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<int64_t>(best) + 1);
  }
  for (const std::string& part : parts) {
    const auto it = by_bytes_.find(part);
    if (it != by_bytes_.end()) ids.push_back(it->second.id);
  }
}

std::vector<int32_t> ByteBpe::Encode(std::string_view text) const {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const size_t n = NextWord(text);
    EncodeWord(text.substr(0, n), ids);
    text.remove_prefix(n);
  }
  return ids;
}

}  // namespace pagemill::examples
