#include "cc/net/handshake.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cc/base/endian.h"

namespace pagemill::net {
namespace {

constexpr size_t kMacBytes = sizeof(Digest256);

// What the sender says, and its proof: the payload of kProof and kWelcome.
struct Signed {
  Payload said;
  Digest256 mac = {};
};

Payload Encode(const Signed& message) {
  Payload payload = message.said;
  const auto mac = std::as_bytes(std::span(message.mac));
  payload.insert(payload.end(), mac.begin(), mac.end());
  return payload;
}

std::optional<Signed> DecodeSigned(std::span<const std::byte> payload, size_t said_bytes) {
  if (payload.size() != said_bytes + kMacBytes) return std::nullopt;
  const auto said = payload.first(said_bytes);
  Signed message = {.said = Payload(said.begin(), said.end())};
  std::memcpy(&message.mac, payload.data() + said_bytes, kMacBytes);
  return message;
}

Status NewGreeting(const Protocol& protocol, Greeting* greeting) {
  std::memcpy(greeting->magic.data(), protocol.magic.data(), protocol.magic.size());
  return FillRandom(greeting->nonce);
}

bool IsOfThisVersion(const Protocol& protocol, const Greeting& greeting) {
  return std::memcmp(greeting.magic.data(), protocol.magic.data(), protocol.magic.size()) == 0;
}

// Proof of the side `side` (" client" or " server") that it said `said`.
Digest256 MacOf(const Secret& secret, std::string_view protocol, std::string_view side,
                const Greeting& client, const Greeting& server, std::span<const std::byte> said) {
  return secret.Mac({AsBytes(protocol), AsBytes(side), Encode(client), Encode(server), said});
}

Status Sentence(const Protocol& protocol, Refusal refusal) {
  switch (refusal) {
    case Refusal::kVersion:
      return FailedPrecondition(std::string(protocol.other_version));
    case Refusal::kSecret:
      return FailedPrecondition(std::string(protocol.other_secret));
    case Refusal::kClaim:
      return FailedPrecondition(std::string(protocol.refused_claim));
    case Refusal::kProtocol:
      break;
  }
  return DataLoss(std::string(protocol.misunderstood));
}

}  // namespace

Payload Encode(const Greeting& greeting) {
  Payload payload(greeting.magic.begin(), greeting.magic.end());
  payload.insert(payload.end(), greeting.nonce.begin(), greeting.nonce.end());
  return payload;
}

std::optional<Greeting> DecodeGreeting(std::span<const std::byte> payload) {
  Greeting greeting;
  if (payload.size() != greeting.magic.size() + greeting.nonce.size()) return std::nullopt;
  std::ranges::copy(payload.first(greeting.magic.size()), greeting.magic.begin());
  std::ranges::copy(payload.subspan(greeting.magic.size()), greeting.nonce.begin());
  return greeting;
}

Payload Encode(Refusal refusal) {
  Payload payload(8);
  StoreLittle64(static_cast<uint64_t>(refusal), payload.data());
  return payload;
}

std::optional<Refusal> DecodeRefusal(std::span<const std::byte> payload) {
  if (payload.size() != 8) return std::nullopt;
  const uint64_t number = LoadLittle64(payload.data());
  if (number < 1 || number > static_cast<uint64_t>(Refusal::kProtocol)) return std::nullopt;
  return static_cast<Refusal>(number);
}

size_t Protocol::MaxBytes() const {
  return std::max(sizeof(Greeting), std::max(claim_bytes, answer_bytes) + kMacBytes);
}

Status ClientHandshake::Start(FrameStream* stream) {
  PAGEMILL_RETURN_IF_ERROR(NewGreeting(*protocol_, &mine_));
  stream->Queue(kHello, {Encode(mine_)});
  return OkStatus();
}

Status ClientHandshake::Take(const Frame& frame, FrameStream* stream) {
  const Status stranger = DataLoss(std::string(protocol_->stranger));
  if (frame.type == kRefusal) {
    const std::optional<Refusal> refusal = DecodeRefusal(frame.payload);
    return refusal ? Sentence(*protocol_, *refusal) : stranger;
  }
  if (frame.type == kChallenge && !proved_) {
    const std::optional<Greeting> greeting = DecodeGreeting(frame.payload);
    if (!greeting) return stranger;
    if (!IsOfThisVersion(*protocol_, *greeting)) return Sentence(*protocol_, Refusal::kVersion);
    theirs_ = *greeting;
    proved_ = true;
    const Digest256 mac = MacOf(*secret_, protocol_->name, " client", mine_, theirs_, claim_);
    stream->Queue(kProof, {Encode(Signed{.said = claim_, .mac = mac})});
    return OkStatus();
  }
  if (frame.type != kWelcome || !proved_) return stranger;
  std::optional<Signed> welcome = DecodeSigned(frame.payload, protocol_->answer_bytes);
  if (!welcome) return stranger;
  const Digest256 mac = MacOf(*secret_, protocol_->name, " server", mine_, theirs_, welcome->said);
  if (!IsSame(welcome->mac, mac)) return Sentence(*protocol_, Refusal::kSecret);
  answer_ = std::move(welcome->said);
  is_done_ = true;
  return OkStatus();
}

Status ServerHandshake::Take(const Frame& frame, FrameStream* stream) {
  return state_ == State::kGreeting ? Greet(frame, stream) : Prove(frame, stream);
}

Status ServerHandshake::Refuse(Refusal refusal, FrameStream* stream) const {
  stream->Queue(kRefusal, {Encode(refusal)});
  return Sentence(*protocol_, refusal);
}

Status ServerHandshake::Greet(const Frame& frame, FrameStream* stream) {
  const std::optional<Greeting> greeting = DecodeGreeting(frame.payload);
  if (frame.type != kHello || !greeting) return Refuse(Refusal::kProtocol, stream);
  if (!IsOfThisVersion(*protocol_, *greeting)) return Refuse(Refusal::kVersion, stream);
  theirs_ = *greeting;
  PAGEMILL_RETURN_IF_ERROR(NewGreeting(*protocol_, &mine_));
  stream->Queue(kChallenge, {Encode(mine_)});
  state_ = State::kProving;
  return OkStatus();
}

Status ServerHandshake::Prove(const Frame& frame, FrameStream* stream) {
  const std::optional<Signed> proof = DecodeSigned(frame.payload, protocol_->claim_bytes);
  if (frame.type != kProof || !proof) return Refuse(Refusal::kProtocol, stream);
  const Digest256 expected =
      MacOf(*secret_, protocol_->name, " client", theirs_, mine_, proof->said);
  if (!IsSame(proof->mac, expected)) return Refuse(Refusal::kSecret, stream);
  // Only a client that knows the secret learns more.
  std::optional<Payload> answer = judge_(proof->said);
  if (!answer) return Refuse(Refusal::kClaim, stream);
  const Digest256 mac = MacOf(*secret_, protocol_->name, " server", theirs_, mine_, *answer);
  stream->Queue(kWelcome, {Encode(Signed{.said = *std::move(answer), .mac = mac})});
  state_ = State::kDone;
  return OkStatus();
}

}  // namespace pagemill::net
