// File: cc/kv_transfer/tcp/peer_messages.h
// What an engine that loads KV (the client) and one that has it (the server) say to one another by
// TCP: the payloads of frames (cc/net/frame_stream.h). Numbers are little endian.
//
//   client -> server   a handshake (peer_handshake.h)
//                   -> kFetch   id, number of the handover, contents of blocks in order; any time
//                   -> kCancel  id: no load waits for it any more
//                   <- kBlock   id, the next block of that fetch as a record (block_record.h)
//                   <- kEnd     id, status code; no block of that fetch follows
//
// Decode...() take any bytes and return nothing if these are no such message.
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_PEER_MESSAGES_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_PEER_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_transfer/block_record.h"
#include "cc/kv_transfer/segment_layout.h"

namespace pagemill::kv_transfer {

enum FrameType : uint32_t {
  // Smaller ones are those of the handshake.
  kFetch = 6,
  kCancel = 7,
  kBlock = 8,
  kEnd = 9,
};

struct Fetch {
  uint64_t id = 0;
  uint64_t number = 0;
  std::vector<kv_cache::ContentKey> keys = {};
};
std::vector<std::byte> Encode(const Fetch& fetch);
std::optional<Fetch> DecodeFetch(std::span<const std::byte> payload);

std::vector<std::byte> EncodeCancel(uint64_t id);
std::optional<uint64_t> DecodeCancel(std::span<const std::byte> payload);

struct BlockMessage {
  uint64_t id = 0;
  std::span<const std::byte> header = {};
  std::span<const std::byte> bytes = {};
};
std::optional<BlockMessage> DecodeBlock(std::span<const std::byte> payload);

struct EndOfFetch {
  uint64_t id = 0;
  StatusCode code = StatusCode::kOk;
};
std::vector<std::byte> Encode(const EndOfFetch& end);
std::optional<EndOfFetch> DecodeEnd(std::span<const std::byte> payload);

// A handshake takes no longer.
inline constexpr int64_t kHandshakeMs = 5'000;
// A server closes a connection that has had no fetch for so long. The client does so earlier, so
// that it does not send a fetch into a connection that is being closed.
inline constexpr int64_t kServerIdleMs = 120'000;
inline constexpr int64_t kClientIdleMs = 60'000;

// Bounds, in bytes of a payload.
inline constexpr size_t kMaxFetchBlocks = 1 << 16;
inline constexpr size_t kMaxRequestBytes = 16 + 40 * kMaxFetchBlocks;
inline constexpr size_t MaxReplyBytes(size_t page_bytes) {
  return 8 + kRecordHeaderBytes + page_bytes;
}

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_PEER_MESSAGES_H_
