#include "cc/kv_transfer/peer_loads.h"

#include <optional>
#include <utility>

namespace pagemill::kv_transfer {

using kv_cache::BlockContent;
using kv_cache::ContentKey;

namespace {

// Segments of peers that are kept open. There are few engines on a machine.
constexpr size_t kMaxPeers = 64;

ContentKey KeyOf(const BlockContent& block) { return {block.hash, block.group}; }

}  // namespace

PeerLoads::Job::Job(kv_cache::KvTransfer taken) : transfer(std::move(taken)) {
  for (const BlockContent& block : transfer.blocks) keys.insert(KeyOf(block));
}

void PeerLoads::Abandon(kv_cache::TransferId id) {
  for (Job& job : jobs_) job.abandoned = job.abandoned || job.transfer.id == id;
}

bool PeerLoads::Advance(std::vector<kv_cache::KvTransferResult>* ended, size_t max_bytes) {
  bool moved = false;
  size_t num_bytes = 0;
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    if (num_bytes >= max_bytes) {
      jobs_.splice(jobs_.end(), jobs_, jobs_.begin(), job);
      break;
    }
    const size_t num_done = job->num_done;
    Outcome outcome = Load(&*job);
    if (job->num_done > num_done) num_bytes += buffer_.size();
    moved = moved || outcome.step != Step::kWaits;
    if (outcome.step != Step::kOver) {
      ++job;
      continue;
    }
    End(*job);
    ended->push_back(
        {job->transfer.id, static_cast<int32_t>(job->num_done), std::move(outcome.status)});
    job = jobs_.erase(job);
  }
  return moved;
}

StatusOr<PeerSegment*> PeerLoads::Peer(const std::string& engine_id) {
  const auto found = peers_.find(engine_id);
  if (found != peers_.end()) return found->second.get();
  if (peers_.size() >= kMaxPeers) peers_.clear();
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<PeerSegment> opened,
                            PeerSegment::Open(engine_id, format_));
  return peers_.emplace(engine_id, std::move(opened)).first->second.get();
}

PeerLoads::Outcome PeerLoads::Load(Job* job) {
  if (job->num_done == job->transfer.blocks.size()) return {Step::kOver, OkStatus()};
  const StatusOr<PeerSegment*> peer = Peer(job->transfer.handover.peer);
  if (!peer.ok()) {
    const char* const hint = job->transfer.handover.host.empty()
                                 ? ""
                                 : "; the address that the client names is not in "
                                   "--kv-transfer-peers";
    return {Step::kOver, {peer.status().code(), peer.status().message() + hint}};
  }
  if (!job->begun) {
    // What was forgotten before is not found.
    const Status read = (*peer)->Refresh();
    if (!read.ok()) return {Step::kOver, read};
    job->begun = true;
  }
  return LoadBlock(job, *peer);
}

PeerLoads::Outcome PeerLoads::LoadBlock(Job* job, PeerSegment* peer) {
  const BlockContent& block = job->transfer.blocks[job->num_done];
  const ContentKey key = KeyOf(block);
  const std::optional<size_t> slot = peer->Find(key);
  if (!slot) return Wait(*job, peer);
  const SegmentEntry entry = peer->entries()[*slot];
  buffer_.resize(pages_->page_bytes(block.group));
  Status status = peer->Read(*slot, buffer_);
  if (!status.ok()) {
    // Perhaps the slot was used again since the directory was read.
    const Status refreshed = peer->Refresh();
    if (!refreshed.ok()) return {Step::kOver, refreshed};
    const std::optional<size_t> again = peer->Find(key);
    const bool same = again == slot && peer->entries()[*slot].sequence == entry.sequence;
    return same ? Outcome{Step::kOver, status} : Outcome{Step::kMoved, OkStatus()};
  }
  status = sink_(job->transfer, job->num_done, buffer_);
  if (!status.ok()) return {Step::kOver, status};
  ++job->num_done;
  // A block that another handover brought again stays for that one.
  if (entry.number == job->transfer.handover.number) status = peer->MarkTaken(*slot);
  return {status.ok() ? Step::kMoved : Step::kOver, status};
}

// The next block is not in the directory. Whether the peer lives is looked at before the directory
// is read again, so that nothing is missed that it wrote last.
PeerLoads::Outcome PeerLoads::Wait(const Job& job, PeerSegment* peer) {
  const kv_cache::Handover& handover = job.transfer.handover;
  const std::string name = "engine " + handover.peer;
  const bool alive = peer->IsAlive();
  const Status read = peer->Refresh();
  if (!read.ok()) return {Step::kOver, read};
  if (peer->Find(KeyOf(job.transfer.blocks[job.num_done]))) return {Step::kMoved, OkStatus()};
  if (!alive) return {Step::kOver, Unavailable(name + " is gone")};
  if (peer->num_done() >= handover.number) {
    return {Step::kOver, NotFound(name + " does not have the KV, or no more")};
  }
  if (job.abandoned) return {Step::kOver, Unavailable(name + " did not send the KV in time")};
  // What this engine had already need not be read; it may take the room that the rest waits for.
  const auto entries = peer->entries();
  for (size_t slot = 0; slot < entries.size(); ++slot) {
    if (entries[slot].sequence == 0 || entries[slot].number != handover.number) continue;
    if (!job.keys.contains(entries[slot].key)) (void)peer->MarkTaken(slot);
  }
  return {Step::kWaits, OkStatus()};
}

// Nothing waits for what is left of the handover.
void PeerLoads::End(const Job& job) {
  const kv_cache::Handover& handover = job.transfer.handover;
  const auto found = peers_.find(handover.peer);
  if (found == peers_.end()) return;
  PeerSegment& peer = *found->second;
  if (!peer.Refresh().ok() || !peer.IsAlive()) {
    peers_.erase(found);
    return;
  }
  for (size_t slot = 0; slot < peer.entries().size(); ++slot) {
    const SegmentEntry& entry = peer.entries()[slot];
    if (entry.sequence != 0 && entry.number == handover.number) (void)peer.MarkTaken(slot);
  }
}

}  // namespace pagemill::kv_transfer
