// File: cc/kv_transfer/shared_segment.h
// KV blocks in POSIX shared memory, from the process that writes them to others that read them
// (peer_segment.h). The segment is removed with its writer, or by the next process that notices
// that the writer is gone.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto segment, SharedSegment::Create(options));
//   PAGEMILL_ASSIGN_OR_RETURN(bool written, segment->Put(key, number, bytes, now_ms));
//   PAGEMILL_RETURN_IF_ERROR(segment->SetDone(number));
//
// A slot is free again once a reader has marked it, or after `keep_ms`.
//
// Both sides read and write the segment as a file, never as mapped memory: a peer that truncates it
// or a full /dev/shm gives a status, not a signal
// (docs/decisions/0042-kv-is-handed-over-by-blocks.md). The writer believes nothing that is in it
// but the marks. Only processes of the same user can open it. Cost of Put(): that of writing the
// block; O(slots) if none is free. Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_SHARED_SEGMENT_H_
#define PAGEMILL_CC_KV_TRANSFER_SHARED_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_transfer/posix_file.h"
#include "cc/kv_transfer/segment_layout.h"

namespace pagemill::kv_transfer {

class SharedSegment {
 public:
  struct Options {
    SegmentFormat format = {};
    // Bound for the whole segment. Memory is taken when a slot is first written.
    int64_t bytes = 0;
    // Blocks that no reader has taken stay for so long, in milliseconds.
    int64_t keep_ms = 10'000;
  };

  // Also removes segments whose processes are gone. kInvalidArgument if `bytes` hold no two slots
  // or there is no shared memory.
  static StatusOr<std::unique_ptr<SharedSegment>> Create(const Options& options);
  ~SharedSegment();  // removes the segment

  // 32 random hexadecimal digits, by which peers find the segment.
  const std::string& engine_id() const { return engine_id_; }
  int64_t num_slots() const { return static_cast<int64_t>(slots_.size()); }

  // Writes a block of a handover; a block that is there already is only kept for longer. False if
  // no slot is free now. `now_ms`: of a clock that does not go back. kResourceExhausted if the
  // machine has no room.
  StatusOr<bool> Put(const kv_cache::ContentKey& key, uint64_t number,
                     std::span<const std::byte> bytes, int64_t now_ms);
  // Handovers up to `number` are done: what is not there of them will not come.
  Status SetDone(uint64_t number);
  // Readers find nothing any more of what was written before.
  Status Forget();

 private:
  struct Slot {
    kv_cache::ContentKey key;
    uint64_t sequence = 0;  // 0: free
    int64_t put_ms = 0;
  };

  SharedSegment(const Options& options, std::string engine_id, PosixFile file, size_t num_slots);
  Status WriteHeader();
  Status WriteEntry(size_t slot, uint64_t number);
  Status Reclaim(int64_t now_ms);

  const Options options_;
  const std::string engine_id_;
  PosixFile file_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  SlotIndex index_;
  uint64_t num_puts_ = 0;  // ever; the sequence of the last one
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_SHARED_SEGMENT_H_
