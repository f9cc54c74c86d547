// File: cc/kv_transfer/peer_segment.h
// What another process wrote into its segment of shared memory (shared_segment.h).
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto peer, PeerSegment::Open(engine_id, format));
//   PAGEMILL_RETURN_IF_ERROR(peer->Refresh());
//   if (const auto slot = peer->Find(key)) {
//     PAGEMILL_RETURN_IF_ERROR(peer->Read(*slot, page));
//     PAGEMILL_RETURN_IF_ERROR(peer->MarkTaken(*slot));
//   } else if (peer->num_done() >= number || !peer->IsAlive()) {
//     ... it will not come ...
//   }
//
// Whatever is read is checked: geometry against the reader's own, blocks by name and checksum,
// which also finds those that were overwritten meanwhile. Cost of Refresh(): O(slots). Thread
// safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_PEER_SEGMENT_H_
#define PAGEMILL_CC_KV_TRANSFER_PEER_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_transfer/posix_file.h"
#include "cc/kv_transfer/segment_layout.h"

namespace pagemill::kv_transfer {

class PeerSegment {
 public:
  // kNotFound if there is none, kFailedPrecondition if it is of another model or version,
  // kDataLoss if it is damaged,
  // kInvalidArgument if there is no such id.
  static StatusOr<std::unique_ptr<PeerSegment>> Open(const std::string& engine_id,
                                                     const SegmentFormat& format);

  // False once the process that made the segment is gone; the segment is removed then.
  bool IsAlive();
  // Reads what there is. num_done() is as old as the directory, or older.
  Status Refresh();
  uint64_t num_done() const { return num_done_; }
  std::optional<size_t> Find(const kv_cache::ContentKey& key) const;
  // By slot, as of Refresh(). `sequence` 0: there is nothing in it.
  std::span<const SegmentEntry> entries() const { return entries_; }
  // kDataLoss if the slot holds something else by now.
  Status Read(size_t slot, std::span<std::byte> to);
  // The writer may use the slot again. Does nothing if that was said before.
  Status MarkTaken(size_t slot);

 private:
  PeerSegment(std::string engine_id, const SegmentFormat& format, PosixFile file, size_t num_slots)
      : engine_id_(std::move(engine_id)),
        format_(format),
        file_(std::move(file)),
        entries_(num_slots),
        taken_(num_slots) {}

  const std::string engine_id_;
  const SegmentFormat format_;
  PosixFile file_;
  std::vector<SegmentEntry> entries_;
  std::vector<uint64_t> taken_;  // sequences that were marked, by slot
  SlotIndex index_;
  uint64_t num_done_ = 0;
  std::vector<std::byte> bytes_;  // during a call
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_PEER_SEGMENT_H_
