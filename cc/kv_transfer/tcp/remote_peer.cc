#include "cc/kv_transfer/tcp/remote_peer.h"

#include <algorithm>
#include <string>

#include "cc/kv_transfer/block_record.h"
#include "cc/kv_transfer/tcp/peer_messages.h"
#include "cc/net/tcp_socket.h"

namespace pagemill::kv_transfer {

using kv_cache::BlockContent;
using kv_cache::KvTransferResult;

namespace {

// Frames of one connection, before others have their turn.
constexpr int kMaxFramesAtOnce = 16;

Status NotOurs() { return DataLoss("what listens there sends what no engine sends"); }

}  // namespace

void RemotePeer::Add(kv_cache::KvTransfer load) {
  const uint64_t id = load.id.value();
  Job& job = jobs_.emplace(id, Job{std::move(load)}).first->second;
  if (link_ && link_->handshake.is_done()) Fetch(&job);
}

void RemotePeer::Abandon(kv_cache::TransferId id) {
  if (!jobs_.contains(id.value())) return;
  if (link_ && link_->handshake.is_done()) {
    link_->stream.Queue(kCancel, {EncodeCancel(id.value())});
  }
  End(id.value(), Unavailable("it did not send the KV in time"));
}

bool RemotePeer::Advance(int64_t now_ms, std::vector<KvTransferResult>* ended) {
  bool moved = false;
  if (link_ || !jobs_.empty()) {
    const StatusOr<bool> progress = Progress(now_ms);
    moved = !progress.ok() || *progress;
    if (!progress.ok()) {
      link_.reset();
      while (!jobs_.empty()) End(jobs_.begin()->first, progress.status());
    }
  }
  moved = moved || !ended_.empty();
  for (KvTransferResult& result : ended_) ended->push_back(std::move(result));
  ended_.clear();
  return moved;
}

Status RemotePeer::Open(int64_t now_ms) {
  PAGEMILL_ASSIGN_OR_RETURN(net::TcpSocket socket,
                            net::TcpSocket::Connect(address_, config_.timeout_ms));
  link_.emplace(Link{.stream = net::FrameStream(std::move(socket), config_.timeout_ms),
                     .handshake = LoaderHandshake(&config_.secret, config_.format),
                     .used_ms = now_ms});
  return link_->handshake.Start(&link_->stream);
}

StatusOr<bool> RemotePeer::Progress(int64_t now_ms) {
  if (!link_) PAGEMILL_RETURN_IF_ERROR(Open(now_ms));
  PAGEMILL_RETURN_IF_ERROR(link_->stream.Flush(now_ms));
  PAGEMILL_ASSIGN_OR_RETURN(const bool moved, ReadAll(now_ms));
  PAGEMILL_RETURN_IF_ERROR(link_->stream.Flush(now_ms));
  if (link_->handshake.is_done()) {
    if (!jobs_.empty()) link_->used_ms = now_ms;
    if (now_ms - link_->used_ms > kClientIdleMs) link_.reset();
  } else if (now_ms - link_->used_ms > std::min(kHandshakeMs, config_.timeout_ms)) {
    return Status(StatusCode::kDeadlineExceeded, "it did not answer");
  }
  return moved;
}

StatusOr<bool> RemotePeer::ReadAll(int64_t now_ms) {
  const size_t most = MaxReplyBytes(config_.format.page_bytes);
  for (int i = 0; i < kMaxFramesAtOnce; ++i) {
    const bool greets = !link_->handshake.is_done();
    PAGEMILL_ASSIGN_OR_RETURN(const std::optional<net::Frame> frame,
                              link_->stream.Read(greets ? kPeerProtocol.MaxBytes() : most, now_ms));
    if (!frame) return i > 0;
    if (!greets) {
      PAGEMILL_RETURN_IF_ERROR(Take(*frame));
      continue;
    }
    PAGEMILL_RETURN_IF_ERROR(link_->handshake.Take(*frame, &link_->stream));
    if (!link_->handshake.is_done()) continue;
    // Fetch() may end jobs.
    for (auto job = jobs_.begin(); job != jobs_.end();) Fetch(&(job++)->second);
  }
  return true;
}

// Asks for the blocks of a load, or ends it if this engine does not have them.
void RemotePeer::Fetch(Job* job) {
  const kv_cache::KvTransfer& load = job->transfer;
  const uint64_t id = load.id.value();
  if (load.handover.peer != EngineIdOf(link_->handshake)) {
    return End(id, NotFound("it is another engine than the one that had the KV"));
  }
  if (load.blocks.size() > kMaxFetchBlocks) {
    return End(id, ResourceExhausted("more than " + std::to_string(kMaxFetchBlocks) + " blocks"));
  }
  if (load.blocks.empty()) return End(id, OkStatus());
  kv_transfer::Fetch fetch{.id = id, .number = load.handover.number};
  for (const BlockContent& block : load.blocks) fetch.keys.push_back({block.hash, block.group});
  link_->stream.Queue(kFetch, {Encode(fetch)});
}

// What comes for a load that is over is dropped.
Status RemotePeer::Take(const net::Frame& frame) {
  if (frame.type == kBlock) {
    const std::optional<BlockMessage> block = DecodeBlock(frame.payload);
    if (!block) return NotOurs();
    TakeBlock(*block);
    return OkStatus();
  }
  const std::optional<EndOfFetch> end = DecodeEnd(frame.payload);
  if (frame.type != kEnd || !end) return NotOurs();
  if (!jobs_.contains(end->id)) return OkStatus();
  if (end->code == StatusCode::kOk) return NotOurs();  // blocks are missing
  End(end->id, {end->code, "it does not have the KV, or no more (" +
                               std::string(StatusCodeName(end->code)) + ")"});
  return OkStatus();
}

void RemotePeer::TakeBlock(const BlockMessage& message) {
  const auto found = jobs_.find(message.id);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  Status status = Write(job.transfer.blocks[job.num_done], message);
  if (!status.ok()) {
    link_->stream.Queue(kCancel, {EncodeCancel(message.id)});
    End(message.id, std::move(status));
  } else if (++job.num_done == job.transfer.blocks.size()) {
    End(message.id, OkStatus());
  }
}

Status RemotePeer::Write(const BlockContent& block, const BlockMessage& message) {
  PAGEMILL_RETURN_IF_ERROR(CheckRecord({config_.format.fingerprint, block.hash, block.group},
                                       message.header, message.bytes));
  if (message.bytes.size() != config_.pages->page_bytes(block.group)) {
    return DataLoss("a KV block of another size");
  }
  return config_.pages->Write(block.group, block.block, message.bytes);
}

void RemotePeer::End(uint64_t id, Status status) {
  const auto job = jobs_.find(id);
  if (!status.ok()) {
    status = {status.code(), "engine " + job->second.transfer.handover.peer + " at " +
                                 address_.ToString() + ": " + status.message()};
  }
  ended_.push_back(
      {job->second.transfer.id, static_cast<int32_t>(job->second.num_done), std::move(status)});
  jobs_.erase(job);
}

}  // namespace pagemill::kv_transfer
