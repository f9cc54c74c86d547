#include "cc/kv_transfer/peer_segment.h"

#include <array>
#include <cstring>

#include "cc/base/endian.h"
#include "cc/kv_cache/connectors/handover.h"
#include "cc/kv_transfer/block_record.h"

namespace pagemill::kv_transfer {

using kv_cache::ContentKey;

StatusOr<std::unique_ptr<PeerSegment>> PeerSegment::Open(const std::string& engine_id,
                                                         const SegmentFormat& format) {
  if (!kv_cache::IsEngineId(engine_id)) {
    return InvalidArgument("\"" + engine_id + "\" is no engine's id: it has 32 hexadecimal digits");
  }
  PAGEMILL_ASSIGN_OR_RETURN(PosixFile file, PosixFile::OpenShared(SegmentName(engine_id)));
  const std::string name = "the shared memory of engine " + engine_id;
  SegmentHeader header = {};
  PAGEMILL_RETURN_IF_ERROR(file.ReadAt(0, header));
  const uint64_t num_slots = SegmentHeaderSlots(header);
  if (std::memcmp(header.data(), kSegmentMagic, sizeof(kSegmentMagic)) != 0) {
    return FailedPrecondition(name + " is of another version of Pagemill");
  }
  if (num_slots < 1 || num_slots > uint64_t{kMaxSegmentSlots})
    return DataLoss(name + " is damaged");
  if (header != EncodeSegmentHeader(format, num_slots)) {
    return FailedPrecondition(name + " holds KV of another model or layout");
  }
  PAGEMILL_ASSIGN_OR_RETURN(const int64_t size, file.size());
  if (size != SegmentBytes(num_slots, format.page_bytes)) {
    return DataLoss(name + " has another size than it says");
  }
  return std::unique_ptr<PeerSegment>(
      new PeerSegment(engine_id, format, std::move(file), num_slots));
}

bool PeerSegment::IsAlive() {
  if (!file_.TryLock(PosixFile::Lock::kShared)) return true;
  PosixFile::RemoveShared(SegmentName(engine_id_));
  return false;
}

Status PeerSegment::Refresh() {
  std::array<std::byte, 8> done;
  PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(kSegmentDoneAt, done));
  bytes_.resize(entries_.size() * kSegmentEntryBytes);
  PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(kSegmentDirectoryAt, bytes_));
  num_done_ = LoadLittle64(done.data());
  index_.clear();
  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i] = DecodeSegmentEntry(&bytes_[i * kSegmentEntryBytes]);
    if (entries_[i].sequence != 0) index_.emplace(entries_[i].key, i);
  }
  return OkStatus();
}

std::optional<size_t> PeerSegment::Find(const ContentKey& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

Status PeerSegment::Read(size_t slot, std::span<std::byte> to) {
  if (to.size() > format_.page_bytes) return Internal("a KV page is larger than a slot");
  std::array<std::byte, kRecordHeaderBytes> header;
  const int64_t at = SegmentRecordAt(slot, entries_.size(), format_.page_bytes);
  PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(at, header));
  PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(at + static_cast<int64_t>(kRecordHeaderBytes), to));
  const ContentKey& key = entries_[slot].key;
  return CheckRecord({format_.fingerprint, key.hash, key.group}, header, to);
}

Status PeerSegment::MarkTaken(size_t slot) {
  const uint64_t sequence = entries_[slot].sequence;
  if (std::exchange(taken_[slot], sequence) == sequence) return OkStatus();
  std::array<std::byte, kSegmentMarkBytes> mark;
  StoreLittle64(sequence, mark.data());
  const auto at = static_cast<int64_t>(slot * kSegmentMarkBytes);
  return file_.WriteAt(SegmentMarksAt(entries_.size()) + at, mark);
}

}  // namespace pagemill::kv_transfer
