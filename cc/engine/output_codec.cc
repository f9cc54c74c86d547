#include "cc/engine/output_codec.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace pagemill::engine {
namespace {

template <typename T>
concept Id = requires { typename T::ValueType; };
template <typename T>
concept Float = std::same_as<T, float> || std::same_as<T, double>;
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

class Writer {
 public:
  std::string Take() { return std::move(bytes_); }

  void Write(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void Write(int32_t value) {
    const auto bits = static_cast<uint32_t>(value);
    Write(uint64_t{bits << 1 ^ (value < 0 ? ~0u : 0u)});
  }
  void Write(uint16_t value) { Write(int32_t{value}); }
  template <Float T>
  void Write(T value) {
    const auto bits = std::bit_cast<BitsOf<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
  }
  void Write(const std::string& text) {
    Write(uint64_t{text.size()});
    bytes_ += text;
  }
  void Write(step::FinishReason reason) { Write(static_cast<int32_t>(reason)); }
  void Write(const Status& status) {
    Write(static_cast<int32_t>(status.code()));
    Write(status.message());
    Write(status.retry_after_s());
  }
  void Write(const step::TokenLogprobs& entry) {
    Write(entry.token_id);
    Write(entry.logprob);
    Write(entry.rank);
    Write(entry.top);
  }
  template <typename A, typename B>
  void Write(const std::pair<A, B>& pair) {
    Write(pair.first);
    Write(pair.second);
  }
  void Write(const step::KvTransferParams& params) {
    Write(uint64_t{params.size()});
    for (const auto& param : params) Write(param);
  }
  template <typename T>
  void Write(const std::vector<T>& values) {
    Write(uint64_t{values.size()});
    for (const T& value : values) Write(value);
  }
  template <typename T>
  void Write(const std::optional<T>& value) {  // the mask says that there is one
    Write(*value);
  }

 private:
  std::string bytes_;
};

// Each Read() is false if the bytes end too early or are no such value.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }

  bool Read(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const uint64_t byte = Next();
      if (shift == 63 && byte > 1) return false;
      *value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Read(int32_t* value) {
    uint64_t bits = 0;
    if (!Read(&bits) || bits > UINT32_MAX) return false;
    const auto low = static_cast<uint32_t>(bits);
    *value = static_cast<int32_t>(low >> 1 ^ ((low & 1) != 0 ? ~0u : 0u));
    return true;
  }
  bool Read(uint16_t* value) {
    int32_t wide = 0;
    if (!Read(&wide) || wide < 0 || wide > UINT16_MAX) return false;
    *value = static_cast<uint16_t>(wide);
    return true;
  }
  template <Float T>
  bool Read(T* value) {
    if (left_.size() < sizeof(T)) return false;
    BitsOf<T> bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) bits |= BitsOf<T>{Next()} << (8 * i);
    *value = std::bit_cast<T>(bits);
    return true;
  }
  bool Read(std::string* text) {
    uint64_t size = 0;
    if (!Read(&size) || size > left_.size()) return false;
    *text = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }
  bool Read(step::FinishReason* reason) {
    int32_t number = 0;
    if (!Read(&number) || number < 0 || number >= step::kNumFinishReasons) return false;
    *reason = static_cast<step::FinishReason>(number);
    return true;
  }
  bool Read(Status* status) {
    int32_t code = 0, retry_after_s = 0;
    std::string message;
    if (!Read(&code) || !Read(&message) || !Read(&retry_after_s)) return false;
    if (code <= 0 || code > static_cast<int32_t>(StatusCode::kDataLoss)) return false;
    *status = Status(static_cast<StatusCode>(code), std::move(message));
    if (retry_after_s > 0) *status = std::move(*status).WithRetryAfter(retry_after_s);
    return true;
  }
  bool Read(step::TokenLogprobs* entry) {
    return Read(&entry->token_id) && Read(&entry->logprob) && Read(&entry->rank) &&
           Read(&entry->top);
  }
  template <typename A, typename B>
  bool Read(std::pair<A, B>* pair) {
    return Read(&pair->first) && Read(&pair->second);
  }
  bool Read(step::KvTransferParams* params) {
    std::vector<std::pair<std::string, std::string>> pairs;
    if (!Read(&pairs)) return false;
    params->insert(pairs.begin(), pairs.end());
    return params->size() == pairs.size();
  }
  template <typename T>
  bool Read(std::vector<T>* values) {
    uint64_t size = 0;
    // A value takes a byte at least, so that a size alone allocates nothing.
    if (!Read(&size) || size > left_.size()) return false;
    for (; size > 0; --size) {
      if (!Read(&values->emplace_back())) return false;
    }
    return true;
  }
  template <typename T>
  bool Read(std::optional<T>* value) {
    return Read(&value->emplace());
  }

 private:
  uint8_t Next() {
    const auto byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return byte;
  }

  std::string_view left_;
};

bool IsEmpty(const Status& status) { return status.ok(); }
bool IsEmpty(int32_t value) { return value == 0; }
bool IsEmpty(double value) { return std::bit_cast<uint64_t>(value) == 0; }
bool IsEmpty(const step::KvTransferParams& params) { return params.empty(); }
template <typename T>
bool IsEmpty(const std::vector<T>& values) {
  return values.empty();
}
template <typename T>
bool IsEmpty(const std::optional<T>& value) {
  return !value.has_value();
}

// Calls `visit(bit, member)` for each field except the id, which has no bit.
template <typename Visitor>
void VisitFields(Visitor&& visit) {
  uint64_t bit = 1;
  RequestOutput::Visit([&](const char*, auto member, const FieldInfo&) {
    using Member = std::remove_cvref_t<decltype(std::declval<RequestOutput&>().*member)>;
    if constexpr (!Id<Member>) {
      visit(bit, member);
      bit <<= 1;
    }
  });
}

bool ReadOutput(Reader* reader, RequestOutput* output) {
  uint64_t id = 0, mask = 0;
  if (!reader->Read(&id) || !reader->Read(&mask)) return false;
  output->request_id = step::RequestId(id);
  bool ok = true;
  VisitFields([&](uint64_t bit, auto member) {
    if (ok && (mask & bit) != 0) ok = reader->Read(&(output->*member));
    mask &= ~bit;
  });
  return ok && mask == 0;
}

}  // namespace

std::string EncodeOutputs(std::span<const RequestOutput> outputs) {
  Writer writer;
  writer.Write(uint64_t{outputs.size()});
  for (const RequestOutput& output : outputs) {
    uint64_t mask = 0;
    VisitFields([&](uint64_t bit, auto member) {
      if (!IsEmpty(output.*member)) mask |= bit;
    });
    writer.Write(output.request_id.value());
    writer.Write(mask);
    VisitFields([&](uint64_t bit, auto member) {
      if ((mask & bit) != 0) writer.Write(output.*member);
    });
  }
  return writer.Take();
}

StatusOr<std::vector<RequestOutput>> DecodeOutputs(std::string_view bytes) {
  Reader reader(bytes);
  uint64_t count = 0;
  bool ok = reader.Read(&count) && count <= bytes.size() / 2;  // id and mask of each
  std::vector<RequestOutput> outputs;
  for (; ok && count > 0; --count) ok = ReadOutput(&reader, &outputs.emplace_back());
  if (!ok || !reader.empty()) {
    return InvalidArgument("these bytes are not outputs of this version of Pagemill");
  }
  return outputs;
}

std::string OutputSchema() {
  std::string schema = "outputs 1";
  RequestOutput::Visit(
      [&](const char* name, auto, const FieldInfo&) { schema.append(" ").append(name); });
  return schema;
}

}  // namespace pagemill::engine
