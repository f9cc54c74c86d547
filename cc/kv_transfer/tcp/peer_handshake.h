// File: cc/kv_transfer/tcp/peer_handshake.h
// The first messages of a connection between engines (peer_messages.h): after them each side knows
// that the other one has the secret, and that their KV fits together. Neither sends anything else
// before.
//
//   ClientHandshake handshake(&secret, format);
//   PAGEMILL_RETURN_IF_ERROR(handshake.Start(&stream));
//   ... with each frame, until it is done:
//   PAGEMILL_RETURN_IF_ERROR(handshake.Take(frame, &stream));
//
// A proof covers both nonces, the version and what the sender claims, so that none can be used
// again or altered. Messages after the handshake are not protected: the network between engines has
// to be trusted (docs/security.md). Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_PEER_HANDSHAKE_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_PEER_HANDSHAKE_H_

#include <string>
#include <utility>

#include "cc/base/status.h"
#include "cc/kv_transfer/tcp/frame_stream.h"
#include "cc/kv_transfer/tcp/peer_messages.h"
#include "cc/kv_transfer/tcp/peer_secret.h"

namespace pagemill::kv_transfer {

class ClientHandshake {
 public:
  // `secret` outlives the object.
  ClientHandshake(const PeerSecret* secret, const SegmentFormat& format)
      : secret_(secret), format_(format) {}

  Status Start(FrameStream* stream);
  // kFailedPrecondition if one side refuses the other, kDataLoss if the other one speaks something
  // else.
  Status Take(const Frame& frame, FrameStream* stream);
  bool is_done() const { return !engine_id_.empty(); }
  // The server's, once done.
  const std::string& engine_id() const { return engine_id_; }

 private:
  const PeerSecret* const secret_;
  const SegmentFormat format_;
  Greeting mine_;
  Greeting theirs_;
  bool proved_ = false;
  std::string engine_id_;
};

class ServerHandshake {
 public:
  // `secret` outlives the object.
  ServerHandshake(const PeerSecret* secret, const SegmentFormat& format, std::string engine_id)
      : secret_(secret), format_(format), engine_id_(std::move(engine_id)) {}

  // After an error, what is queued is sent if the socket takes it at once, and the stream closed.
  Status Take(const Frame& frame, FrameStream* stream);
  bool is_done() const { return state_ == State::kDone; }

 private:
  enum class State { kGreeting, kProving, kDone };
  Status Greet(const Frame& frame, FrameStream* stream);
  Status Prove(const Frame& frame, FrameStream* stream);

  const PeerSecret* const secret_;
  const SegmentFormat format_;
  const std::string engine_id_;
  Greeting mine_;
  Greeting theirs_;
  State state_ = State::kGreeting;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_PEER_HANDSHAKE_H_
