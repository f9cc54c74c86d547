#include "cc/comm/tcp/join_messages.h"

#include <algorithm>
#include <cstring>

#include "cc/base/endian.h"
#include "cc/base/status.h"

namespace pagemill::comm {
namespace {

void PutNumber(uint64_t number, net::Payload* to) {
  to->resize(to->size() + 8);
  StoreLittle64(number, to->data() + to->size() - 8);
}

// Cut or padded with zeros to `size` bytes.
void PutText(const std::string& text, size_t size, net::Payload* to) {
  const size_t at = to->size();
  to->resize(at + size);
  std::memcpy(to->data() + at, text.data(), std::min(text.size(), size));
}

// Reads a payload whose size was checked.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t Number() { return LoadLittle64(Next(8).data()); }
  // Printable ASCII, up to the first byte that is something else.
  std::string Text(size_t size) {
    std::string text;
    for (const std::byte each : Next(size)) {
      const char c = static_cast<char>(each);
      if (c < ' ' || c > '~') break;
      text.push_back(c);
    }
    return text;
  }
  Digest256 Digest() {
    Digest256 digest;
    std::memcpy(&digest, Next(sizeof(digest)).data(), sizeof(digest));
    return digest;
  }

 private:
  std::span<const std::byte> Next(size_t size) {
    const auto next = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return next;
  }

  std::span<const std::byte> bytes_;
};

void PutDigest(const Digest256& digest, net::Payload* to) {
  const auto bytes = std::as_bytes(std::span(&digest, 1));
  to->insert(to->end(), bytes.begin(), bytes.end());
}

}  // namespace

net::Payload Encode(const Claim& claim) {
  net::Payload payload;
  PutText(claim.version, kVersionBytes, &payload);
  PutDigest(claim.model, &payload);
  PutDigest(claim.options, &payload);
  PutNumber(static_cast<uint64_t>(claim.rank), &payload);
  PutNumber(static_cast<uint64_t>(claim.number), &payload);
  PutNumber(claim.port, &payload);
  return payload;
}

std::optional<Claim> DecodeClaim(std::span<const std::byte> payload) {
  if (payload.size() != kJoinProtocol.claim_bytes) return std::nullopt;
  Reader in(payload);
  Claim claim = {.version = in.Text(kVersionBytes), .model = in.Digest(), .options = in.Digest()};
  const uint64_t rank = in.Number(), number = in.Number(), port = in.Number();
  if (rank >= static_cast<uint64_t>(kMaxRanks) || number > INT64_MAX || port > UINT16_MAX) {
    return std::nullopt;
  }
  claim.rank = static_cast<int32_t>(rank);
  claim.number = static_cast<int64_t>(number);
  claim.port = static_cast<uint16_t>(port);
  return claim;
}

net::Payload EncodeReason(const std::string& reason) {
  net::Payload payload;
  PutText(reason, kReasonBytes, &payload);
  return payload;
}

std::string DecodeReason(std::span<const std::byte> payload) {
  return payload.size() == kReasonBytes ? Reader(payload).Text(kReasonBytes) : "";
}

net::Payload Encode(const Start& start) {
  PAGEMILL_CHECK(start.places.size() <= static_cast<size_t>(kMaxRanks));
  net::Payload payload;
  PutNumber(static_cast<uint64_t>(start.number), &payload);
  for (const Start::Place& place : start.places) {
    PutText(place.host, kHostBytes, &payload);
    PutNumber(place.port, &payload);
  }
  payload.resize(kStartBytes);
  return payload;
}

std::optional<Start> DecodeStart(std::span<const std::byte> payload, int32_t num_ranks) {
  if (payload.size() != kStartBytes) return std::nullopt;
  Reader in(payload);
  const uint64_t number = in.Number();
  if (number > INT64_MAX) return std::nullopt;
  Start start = {.number = static_cast<int64_t>(number)};
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    Start::Place place = {.host = in.Text(kHostBytes)};
    const uint64_t port = in.Number();
    if (port > UINT16_MAX) return std::nullopt;
    place.port = static_cast<uint16_t>(port);
    start.places.push_back(std::move(place));
  }
  return start;
}

}  // namespace pagemill::comm
