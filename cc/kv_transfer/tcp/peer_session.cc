#include "cc/kv_transfer/tcp/peer_session.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "cc/kv_transfer/block_record.h"

namespace pagemill::kv_transfer {

using kv_cache::KvTransfer;
using kv_cache::TransferId;

namespace {

// Fetches of one connection at a time, and blocks of them all. More are refused, and computed.
constexpr size_t kMaxFetches = 256;
constexpr size_t kMaxFetchedBlocks = 2 * kMaxFetchBlocks;
// Blocks are queued until there are so many bytes, and then not before all of them are sent.
constexpr size_t kMaxQueuedBytes = 1 << 20;
// Frames of one connection, before others have their turn.
constexpr int kMaxFramesAtOnce = 16;

}  // namespace

PeerSession::PeerSession(net::TcpSocket socket, const Config* config, int64_t now_ms)
    : config_(*config),
      stream_(std::move(socket), config->timeout_ms),
      handshake_(OwnerHandshake(&config->secret, config->format, config->engine_id)),
      loads_(config->format, config->pages,
             [this](const KvTransfer& load, size_t index, std::span<const std::byte> bytes) {
               const kv_cache::BlockContent& block = load.blocks[index];
               std::array<std::byte, kRecordHeaderBytes> header;
               EncodeRecordHeader({config_.format.fingerprint, block.hash, block.group}, bytes,
                                  header);
               stream_.Queue(kBlock, {EncodeCancel(load.id.value()), header, bytes});
               return OkStatus();
             }),
      used_ms_(now_ms) {}

// A client that does not read its answers cannot ask for more.
bool PeerSession::reads() const { return stream_.num_queued_bytes() < kMaxQueuedBytes; }

short PeerSession::events() const {  // NOLINT(google-runtime-int)
  return reads() ? stream_.events() : POLLOUT;
}

StatusOr<bool> PeerSession::Advance(int64_t now_ms) {
  const StatusOr<bool> read = ReadAll(now_ms);
  if (!read.ok()) {
    (void)stream_.Flush(now_ms);  // why it was refused
    return read;
  }
  const bool sent = SendBlocks();
  PAGEMILL_RETURN_IF_ERROR(stream_.Flush(now_ms));
  if (!loads_.empty()) used_ms_ = now_ms;
  const int64_t limit_ms =
      handshake_.is_done() ? kServerIdleMs : std::min(kHandshakeMs, config_.timeout_ms);
  if (now_ms - used_ms_ > limit_ms) {
    return Status(StatusCode::kDeadlineExceeded, "the other side wants nothing");
  }
  return *read || sent;
}

StatusOr<bool> PeerSession::ReadAll(int64_t now_ms) {
  for (int i = 0; i < kMaxFramesAtOnce; ++i) {
    if (!reads()) return i > 0;
    const size_t most = handshake_.is_done() ? kMaxRequestBytes : kPeerProtocol.MaxBytes();
    PAGEMILL_ASSIGN_OR_RETURN(const std::optional<net::Frame> frame, stream_.Read(most, now_ms));
    if (!frame) return i > 0;
    if (!handshake_.is_done()) {
      PAGEMILL_RETURN_IF_ERROR(handshake_.Take(*frame, &stream_));
    } else {
      PAGEMILL_RETURN_IF_ERROR(Take(*frame));
    }
    used_ms_ = handshake_.is_done() ? now_ms : used_ms_;
  }
  return true;
}

Status PeerSession::Take(const net::Frame& frame) {
  if (frame.type == kFetch) {
    std::optional<Fetch> fetch = DecodeFetch(frame.payload);
    if (fetch) return Start(*std::move(fetch));
  } else if (frame.type == kCancel) {
    const std::optional<uint64_t> id = DecodeCancel(frame.payload);
    if (id) {
      loads_.Abandon(TransferId(*id));
      return OkStatus();
    }
  }
  return DataLoss("not a message of ours");
}

Status PeerSession::Start(Fetch fetch) {
  if (num_blocks_.contains(fetch.id)) return DataLoss("two fetches have the same id");
  if (num_blocks_.size() >= kMaxFetches ||
      num_fetched_blocks_ + fetch.keys.size() > kMaxFetchedBlocks) {
    SendEnd(fetch.id, StatusCode::kResourceExhausted);
    return OkStatus();
  }
  num_blocks_.emplace(fetch.id, fetch.keys.size());
  num_fetched_blocks_ += fetch.keys.size();
  KvTransfer load{.id = TransferId(fetch.id)};
  load.handover = {.peer = config_.engine_id, .number = fetch.number};
  for (const kv_cache::ContentKey& key : fetch.keys) {
    load.blocks.push_back({.hash = key.hash, .group = key.group, .block = kv_cache::kNullBlock});
  }
  loads_.Add(std::move(load));
  return OkStatus();
}

bool PeerSession::SendBlocks() {
  if (loads_.empty() || stream_.num_queued_bytes() > 0) return false;
  bool moved = false;
  while (stream_.num_queued_bytes() < kMaxQueuedBytes &&
         loads_.Advance(&ended_, kMaxQueuedBytes - stream_.num_queued_bytes())) {
    moved = true;
  }
  for (const kv_cache::KvTransferResult& result : ended_) {
    const auto fetch = num_blocks_.find(result.id.value());
    num_fetched_blocks_ -= fetch->second;
    num_blocks_.erase(fetch);
    SendEnd(result.id.value(), result.status.code());
  }
  ended_.clear();
  return moved;
}

void PeerSession::SendEnd(uint64_t id, StatusCode code) {
  stream_.Queue(kEnd, {Encode(EndOfFetch{.id = id, .code = code})});
}

}  // namespace pagemill::kv_transfer
