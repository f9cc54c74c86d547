#include "bpe.h"

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

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

Status Bpe::ReadHeader(std::string_view line) {
  std::istringstream fields{std::string(line)};
  std::string split, prefix, ids;
  fields >> split >> prefix >> ids;
  if (!fields || (split != "words" && split != "text")) return DataLoss("the header is unknown");
  splits_words_ = split == "words";
  if (prefix != "-" && !ParseHex(prefix, prefix_)) return DataLoss("'" + prefix + "' is not hex");
  std::istringstream list(ids == "-" ? "" : ids);
  for (std::string id; std::getline(list, id, ',');) prefix_ids_.push_back(std::atoi(id.c_str()));
  return OkStatus();
}

void Bpe::Add(std::string bytes, int32_t rank) {
  const auto id = static_cast<int32_t>(bytes_.size());
  if (rank >= -1) by_bytes_.emplace(bytes, Entry{id, rank});
  if (rank == -2) byte_ids_[static_cast<unsigned char>(bytes[0])] = id;
  bytes_.push_back(std::move(bytes));
}

StatusOr<Bpe> Bpe::Load(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NotFound("cannot read the vocabulary file '" + path + "'");
  Bpe bpe;
  std::string header, hex;
  std::getline(in, header);
  if (const Status status = bpe.ReadHeader(header); !status.ok()) {
    return DataLoss(path + ": not a vocabulary file: " + status.message());
  }
  int32_t rank = 0;
  while (in >> hex >> rank) {
    std::string bytes;
    if ((hex != "-" && !ParseHex(hex, bytes)) || (rank == -2 && bytes.size() != 1)) {
      const std::string line = std::to_string(bpe.bytes_.size() + 2);
      return DataLoss(path + " line " + line + ": '" + hex + "' is not a token");
    }
    bpe.Add(std::move(bytes), rank);
  }
  if (bpe.bytes_.empty() || !in.eof()) return DataLoss(path + ": not a vocabulary file");
  return bpe;
}

void Bpe::EncodeWord(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<std::string> parts;
  for (char c : word) {
    const bool continues = !splits_words_ && !parts.empty() && (c & 0xC0) == 0x80;  // of UTF-8
    if (continues) {
      parts.back().push_back(c);
    } else {
      parts.emplace_back(1, c);
    }
  }
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
    if (it != by_bytes_.end()) {
      ids.push_back(it->second.id);
      continue;
    }
    for (char c : part) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  }
}

std::vector<int32_t> Bpe::Encode(std::string_view text) const {
  std::vector<int32_t> ids = prefix_ids_;
  const std::string whole = prefix_ + std::string(text);
  for (text = whole; !text.empty();) {
    const size_t n = splits_words_ ? NextWord(text) : text.size();
    EncodeWord(text.substr(0, n), ids);
    text.remove_prefix(n);
  }
  return ids;
}

}  // namespace pagemill::examples
