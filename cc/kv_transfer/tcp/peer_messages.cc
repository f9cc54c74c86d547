#include "cc/kv_transfer/tcp/peer_messages.h"

#include "cc/base/endian.h"

namespace pagemill::kv_transfer {
namespace {

using kv_cache::ContentKey;

constexpr size_t kKeyBytes = 40;

// Appends to a payload.
class Writer {
 public:
  void Number(uint64_t number) {
    bytes_.resize(bytes_.size() + 8);
    StoreLittle64(number, &bytes_[bytes_.size() - 8]);
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads a payload whose size was checked.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t Number() { return LoadLittle64(Next(8).data()); }
  std::span<const std::byte> Next(size_t size) {
    const auto next = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return next;
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> Encode(const Fetch& fetch) {
  Writer out;
  out.Number(fetch.id);
  out.Number(fetch.number);
  for (const ContentKey& key : fetch.keys) {
    for (const uint64_t word : key.hash.words) out.Number(word);
    out.Number(key.group.value());
  }
  return out.Take();
}

std::optional<Fetch> DecodeFetch(std::span<const std::byte> payload) {
  if (payload.size() < 16 || (payload.size() - 16) % kKeyBytes != 0) return std::nullopt;
  Reader in(payload);
  Fetch fetch;
  fetch.id = in.Number();
  fetch.number = in.Number();
  while (in.left() > 0) {
    ContentKey& key = fetch.keys.emplace_back();
    for (uint64_t& word : key.hash.words) word = in.Number();
    const uint64_t group = in.Number();
    if (group > UINT16_MAX) return std::nullopt;
    key.group = kv_cache::GroupId(static_cast<uint16_t>(group));
  }
  return fetch;
}

std::vector<std::byte> EncodeCancel(uint64_t id) {
  Writer out;
  out.Number(id);
  return out.Take();
}

std::optional<uint64_t> DecodeCancel(std::span<const std::byte> payload) {
  if (payload.size() != 8) return std::nullopt;
  return Reader(payload).Number();
}

std::optional<BlockMessage> DecodeBlock(std::span<const std::byte> payload) {
  if (payload.size() < 8 + kRecordHeaderBytes) return std::nullopt;
  Reader in(payload);
  BlockMessage block;
  block.id = in.Number();
  block.header = in.Next(kRecordHeaderBytes);
  block.bytes = in.Next(in.left());
  return block;
}

std::vector<std::byte> Encode(const EndOfFetch& end) {
  Writer out;
  out.Number(end.id);
  out.Number(static_cast<uint64_t>(end.code));
  return out.Take();
}

std::optional<EndOfFetch> DecodeEnd(std::span<const std::byte> payload) {
  if (payload.size() != 16) return std::nullopt;
  Reader in(payload);
  EndOfFetch end;
  end.id = in.Number();
  const uint64_t code = in.Number();
  if (code > static_cast<uint64_t>(StatusCode::kDataLoss)) return std::nullopt;
  end.code = static_cast<StatusCode>(code);
  return end;
}

}  // namespace pagemill::kv_transfer
