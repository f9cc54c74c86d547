// File: cc/step/internal/text_fields.h
// Writer and reader of the `key=value` fields of text_codec.h.
#ifndef PAGEMILL_CC_STEP_INTERNAL_TEXT_FIELDS_H_
#define PAGEMILL_CC_STEP_INTERNAL_TEXT_FIELDS_H_

#include <bit>
#include <charconv>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pagemill::step::internal {

inline void AppendNumber(int64_t value, std::string* out) { *out += std::to_string(value); }
inline void AppendNumber(int32_t value, std::string* out) { *out += std::to_string(value); }
inline void AppendNumber(uint64_t value, std::string* out) { *out += std::to_string(value); }
inline void AppendNumber(float value, std::string* out) {
  char digits[8];
  const auto end = std::to_chars(digits, digits + 8, std::bit_cast<uint32_t>(value), 16).ptr;
  *out += 'x';
  out->append(digits, end);
}

inline void AppendHex(std::string_view bytes, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (char c : bytes) {
    *out += kDigits[static_cast<uint8_t>(c) >> 4];
    *out += kDigits[static_cast<uint8_t>(c) & 15];
  }
}

class FieldWriter {
 public:
  explicit FieldWriter(std::string* out) : out_(out) {}

  template <typename T>
  void Number(std::string_view key, T value) {
    Key(key);
    AppendNumber(value, out_);
  }
  // Items separated by commas, each written by `append(item, out)`.
  template <typename Items, typename Append>
  void List(std::string_view key, const Items& items, Append append) {
    Key(key);
    bool first = true;
    for (const auto& item : items) {
      if (!first) *out_ += ',';
      first = false;
      append(item, out_);
    }
  }
  void Numbers(std::string_view key, std::span<const int32_t> values) {
    List(key, values, [](int32_t v, std::string* out) { AppendNumber(v, out); });
  }
  void Bytes(std::string_view key, std::string_view bytes) {
    Key(key);
    AppendHex(bytes, out_);
  }

 private:
  void Key(std::string_view key) {
    *out_ += ' ';
    *out_ += key;
    *out_ += '=';
  }
  std::string* out_;
};

// Cuts off and returns what stands before the first `separator`; all if there is none.
inline std::string_view CutAt(char separator, std::string_view* text) {
  const size_t at = text->find(separator);
  const std::string_view head = text->substr(0, at);
  text->remove_prefix(at == std::string_view::npos ? text->size() : at + 1);
  return head;
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}
inline bool ParseNumber(std::string_view text, float* value) {
  if (text.empty() || text[0] != 'x') return false;
  uint32_t bits = 0;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), bits, 16);
  *value = std::bit_cast<float>(bits);
  return error == std::errc() && end == text.data() + text.size();
}

inline bool ParseHex(std::string_view digits, std::string* bytes) {
  if (digits.size() % 2 != 0) return false;
  for (size_t i = 0; i < digits.size(); i += 2) {
    uint8_t byte = 0;
    const char* end = digits.data() + i + 2;
    const auto result = std::from_chars(digits.data() + i, end, byte, 16);
    if (result.ec != std::errc() || result.ptr != end) return false;
    *bytes += static_cast<char>(byte);
  }
  return true;
}

// Reads the fields of a line in the order in which they were written. After the first mistake ok()
// is false and everything else is empty.
class FieldReader {
 public:
  explicit FieldReader(std::string_view line) : rest_(line) {}

  bool ok() const { return ok_; }
  bool AtEnd() const { return rest_.empty(); }
  // For a field that is not always there.
  bool IsNext(std::string_view key) const {
    return rest_.starts_with(key) && rest_.substr(key.size()).starts_with('=');
  }

  void Word(std::string_view word) { Check(CutAt(' ', &rest_) == word); }
  template <typename T>
  void Number(std::string_view key, T* value) {
    Check(ParseNumber(Value(key), value));
  }
  void Flag(std::string_view key, bool* value) {
    int32_t number = 0;
    Number(key, &number);
    Check(number == 0 || number == 1);
    *value = number == 1;
  }
  // Calls `parse(item, &value)` for each item; it says whether the item makes sense.
  template <typename T, typename Parse>
  void List(std::string_view key, std::vector<T>* values, Parse parse) {
    std::string_view items = Value(key);
    while (ok_ && !items.empty()) {
      values->emplace_back();
      Check(parse(CutAt(',', &items), &values->back()));
    }
  }
  template <typename T>
  void Numbers(std::string_view key, std::vector<T>* values) {
    List(key, values, [](std::string_view item, T* value) { return ParseNumber(item, value); });
  }
  void Bytes(std::string_view key, std::string* bytes) { Check(ParseHex(Value(key), bytes)); }
  // A reader's own condition.
  void Check(bool good) { ok_ = ok_ && good; }

 private:
  std::string_view Value(std::string_view key) {
    std::string_view field = CutAt(' ', &rest_);
    Check(CutAt('=', &field) == key);
    return ok_ ? field : std::string_view();
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace pagemill::step::internal

#endif  // PAGEMILL_CC_STEP_INTERNAL_TEXT_FIELDS_H_
