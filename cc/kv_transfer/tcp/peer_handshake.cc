#include "cc/kv_transfer/tcp/peer_handshake.h"

#include <cstring>
#include <optional>

namespace pagemill::kv_transfer {
namespace {

Status NewGreeting(Greeting* greeting) {
  std::memcpy(greeting->magic.data(), kPeerMagic, sizeof(kPeerMagic));
  return FillRandom(greeting->nonce);
}

bool IsOfThisVersion(const Greeting& greeting) {
  return std::memcmp(greeting.magic.data(), kPeerMagic, sizeof(kPeerMagic)) == 0;
}

bool IsSame(const SegmentFormat& a, const SegmentFormat& b) {
  return a.fingerprint == b.fingerprint && a.page_bytes == b.page_bytes;
}

Digest256 ClientMac(const PeerSecret& secret, const Greeting& client, const Greeting& server,
                    const SegmentFormat& format) {
  const std::vector<std::byte> claim = Encode(Proof{.format = format});
  return secret.Mac({AsBytes("pagemill kv client"), Encode(client), Encode(server), claim});
}

Digest256 ServerMac(const PeerSecret& secret, const Greeting& client, const Greeting& server,
                    const std::string& engine_id) {
  return secret.Mac(
      {AsBytes("pagemill kv server"), Encode(client), Encode(server), AsBytes(engine_id)});
}

constexpr char kOtherSecret[] =
    "the other engine does not have the same secret (--kv-transfer-secret-file)";

Status Sentence(Refusal refusal) {
  switch (refusal) {
    case Refusal::kVersion:
      return FailedPrecondition("the other engine is of another version of Pagemill");
    case Refusal::kSecret:
      return FailedPrecondition(kOtherSecret);
    case Refusal::kFormat:
      return FailedPrecondition("the other engine has KV of another model or layout");
    case Refusal::kProtocol:
      break;
  }
  return DataLoss("what listens there did not understand this engine");
}

Status Refuse(Refusal refusal, FrameStream* stream) {
  stream->Queue(kRefusal, {Encode(refusal)});
  return Sentence(refusal);
}

}  // namespace

Status ClientHandshake::Start(FrameStream* stream) {
  PAGEMILL_RETURN_IF_ERROR(NewGreeting(&mine_));
  stream->Queue(kHello, {Encode(mine_)});
  return OkStatus();
}

Status ClientHandshake::Take(const Frame& frame, FrameStream* stream) {
  const Status stranger = DataLoss("what listens there is no engine that hands over KV");
  if (frame.type == kRefusal) {
    const std::optional<Refusal> refusal = DecodeRefusal(frame.payload);
    return refusal ? Sentence(*refusal) : stranger;
  }
  if (frame.type == kChallenge && !proved_) {
    const std::optional<Greeting> greeting = DecodeGreeting(frame.payload);
    if (!greeting) return stranger;
    if (!IsOfThisVersion(*greeting)) return Sentence(Refusal::kVersion);
    theirs_ = *greeting;
    proved_ = true;
    const Digest256 mac = ClientMac(*secret_, mine_, theirs_, format_);
    stream->Queue(kProof, {Encode(Proof{.format = format_, .mac = mac})});
    return OkStatus();
  }
  const std::optional<Welcome> welcome = DecodeWelcome(frame.payload);
  if (frame.type != kWelcome || !proved_ || !welcome) return stranger;
  if (!IsSame(welcome->mac, ServerMac(*secret_, mine_, theirs_, welcome->engine_id))) {
    return FailedPrecondition(kOtherSecret);
  }
  engine_id_ = welcome->engine_id;
  return OkStatus();
}

Status ServerHandshake::Take(const Frame& frame, FrameStream* stream) {
  return state_ == State::kGreeting ? Greet(frame, stream) : Prove(frame, stream);
}

Status ServerHandshake::Greet(const Frame& frame, FrameStream* stream) {
  const std::optional<Greeting> greeting = DecodeGreeting(frame.payload);
  if (frame.type != kHello || !greeting) return Refuse(Refusal::kProtocol, stream);
  if (!IsOfThisVersion(*greeting)) return Refuse(Refusal::kVersion, stream);
  theirs_ = *greeting;
  PAGEMILL_RETURN_IF_ERROR(NewGreeting(&mine_));
  stream->Queue(kChallenge, {Encode(mine_)});
  state_ = State::kProving;
  return OkStatus();
}

Status ServerHandshake::Prove(const Frame& frame, FrameStream* stream) {
  const std::optional<Proof> proof = DecodeProof(frame.payload);
  if (frame.type != kProof || !proof) return Refuse(Refusal::kProtocol, stream);
  if (!IsSame(proof->mac, ClientMac(*secret_, theirs_, mine_, proof->format))) {
    return Refuse(Refusal::kSecret, stream);
  }
  // Only engines that know the secret learn more.
  if (!IsSame(proof->format, format_)) return Refuse(Refusal::kFormat, stream);
  const Digest256 mac = ServerMac(*secret_, theirs_, mine_, engine_id_);
  stream->Queue(kWelcome, {Encode(Welcome{.engine_id = engine_id_, .mac = mac})});
  state_ = State::kDone;
  return OkStatus();
}

}  // namespace pagemill::kv_transfer
