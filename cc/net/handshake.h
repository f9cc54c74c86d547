// File: cc/net/handshake.h
// The first messages of a connection: after them each side knows that the other one has the secret,
// the server knows what the client claims, and the client what the server answers. Neither sends
// anything else before.
//
//   client -> server   kHello      version, nonce
//                   <- kChallenge  version, nonce
//                   -> kProof      the client's claim, proof of the secret
//                   <- kWelcome    the server's answer, proof of the secret; or kRefusal
//
//   ClientHandshake handshake(&protocol, &secret, claim);
//   PAGEMILL_RETURN_IF_ERROR(handshake.Start(&stream));
//   ... with each frame, until it is done:
//   PAGEMILL_RETURN_IF_ERROR(handshake.Take(frame, &stream));
//
// A proof covers both nonces, the version and what the sender says, so that none can be used again
// or altered. Messages after the handshake are not protected: the network between the two sides has
// to be trusted (docs/security.md). Thread safety: none.
#ifndef PAGEMILL_CC_NET_HANDSHAKE_H_
#define PAGEMILL_CC_NET_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/net/frame_stream.h"
#include "cc/net/secret.h"

namespace pagemill::net {

using Payload = std::vector<std::byte>;

// Types of frames; what follows a handshake has larger ones.
enum HandshakeFrame : uint32_t {
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kWelcome = 4,
  kRefusal = 5,
};

// kHello and kChallenge.
struct Greeting {
  std::array<std::byte, 8> magic = {};  // that of the protocol, or of another version
  std::array<std::byte, 32> nonce = {};
};
Payload Encode(const Greeting& greeting);
std::optional<Greeting> DecodeGreeting(std::span<const std::byte> payload);

// Why a server does not serve a client. A number, since the client cannot believe it yet.
enum class Refusal : uint32_t { kVersion = 1, kSecret = 2, kClaim = 3, kProtocol = 4 };
Payload Encode(Refusal refusal);
std::optional<Refusal> DecodeRefusal(std::span<const std::byte> payload);

// Constants of what the two sides speak. Sentences say what the other side is.
struct Protocol {
  std::array<char, 8> magic = {};  // with its version
  std::string_view name = {};      // in proofs, so that those of one protocol are none of another
  size_t claim_bytes = 0;
  size_t answer_bytes = 0;
  std::string_view other_version = {};
  std::string_view other_secret = {};
  std::string_view refused_claim = {};
  std::string_view stranger = {};       // to a client: it is no such server
  std::string_view misunderstood = {};  // it did not understand this side

  // The most bytes of a handshake's payload.
  size_t MaxBytes() const;
};

class ClientHandshake {
 public:
  // `protocol` and `secret` outlive the object.
  ClientHandshake(const Protocol* protocol, const Secret* secret, Payload claim)
      : protocol_(protocol), secret_(secret), claim_(std::move(claim)) {}

  Status Start(FrameStream* stream);
  // kFailedPrecondition if one side refuses the other, kDataLoss if the other one speaks something
  // else.
  Status Take(const Frame& frame, FrameStream* stream);
  bool is_done() const { return is_done_; }
  // The server's, once done.
  const Payload& answer() const { return answer_; }

 private:
  const Protocol* const protocol_;
  const Secret* const secret_;
  const Payload claim_;
  Greeting mine_;
  Greeting theirs_;
  bool proved_ = false;
  bool is_done_ = false;
  Payload answer_;
};

class ServerHandshake {
 public:
  // The answer to a claim; nullopt refuses it.
  using Judge = std::function<std::optional<Payload>(std::span<const std::byte> claim)>;

  // `protocol` and `secret` outlive the object.
  ServerHandshake(const Protocol* protocol, const Secret* secret, Judge judge)
      : protocol_(protocol), secret_(secret), judge_(std::move(judge)) {}

  // After an error, what is queued is sent if the socket takes it at once, and the stream closed.
  Status Take(const Frame& frame, FrameStream* stream);
  bool is_done() const { return state_ == State::kDone; }

 private:
  enum class State { kGreeting, kProving, kDone };
  Status Greet(const Frame& frame, FrameStream* stream);
  Status Prove(const Frame& frame, FrameStream* stream);
  Status Refuse(Refusal refusal, FrameStream* stream) const;

  const Protocol* const protocol_;
  const Secret* const secret_;
  const Judge judge_;
  Greeting mine_;
  Greeting theirs_;
  State state_ = State::kGreeting;
};

}  // namespace pagemill::net

#endif  // PAGEMILL_CC_NET_HANDSHAKE_H_
