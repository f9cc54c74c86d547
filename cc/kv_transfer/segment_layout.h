// File: cc/kv_transfer/segment_layout.h
// Where things are in a segment of shared memory that holds KV blocks (shared_segment.h writes it,
// peer_segment.h reads it). Numbers are little endian.
//
//   0      header: magic with version, fingerprint, number of slots, bytes of a page, checksum
//   64     the number up to which handovers are done
//   4096   a directory entry per slot: sequence (0 = nothing), hash, group, handover number
//   then   a mark per slot, which readers write: the sequence that was taken
//   then   the slots: block records (block_record.h)
#ifndef PAGEMILL_CC_KV_TRANSFER_SEGMENT_LAYOUT_H_
#define PAGEMILL_CC_KV_TRANSFER_SEGMENT_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "cc/base/xxh3.h"
#include "cc/kv_cache/tiers/content_key.h"

namespace pagemill::kv_transfer {

// What reader and writer must agree on.
struct SegmentFormat {
  Digest128 fingerprint = {};  // of the KV: model, weights, layout
  size_t page_bytes = 0;       // of the largest page
};

struct SegmentEntry {
  uint64_t sequence = 0;
  kv_cache::ContentKey key;
  uint64_t number = 0;
};

using SlotIndex = std::unordered_map<kv_cache::ContentKey, size_t, kv_cache::ContentKeyHash>;

inline constexpr char kSegmentPrefix[] = "pagemill-kv-";  // of names, then the engine's id
inline constexpr char kSegmentMagic[8] = {'P', 'M', 'K', 'V', 'S', 'H', 'M', '1'};
inline constexpr int64_t kMaxSegmentSlots = 1 << 18;
inline constexpr size_t kSegmentHeaderBytes = 56;
inline constexpr int64_t kSegmentDoneAt = 64;
inline constexpr int64_t kSegmentDirectoryAt = 4096;
inline constexpr size_t kSegmentEntryBytes = 56;
inline constexpr size_t kSegmentMarkBytes = 8;

using SegmentHeader = std::array<std::byte, kSegmentHeaderBytes>;

// For shm_open().
inline std::string SegmentName(const std::string& engine_id) {
  return std::string("/") + kSegmentPrefix + engine_id;
}

SegmentHeader EncodeSegmentHeader(const SegmentFormat& format, uint64_t num_slots);
uint64_t SegmentHeaderSlots(const SegmentHeader& header);  // as it claims

std::array<std::byte, kSegmentEntryBytes> EncodeSegmentEntry(const SegmentEntry& entry);
SegmentEntry DecodeSegmentEntry(const std::byte* bytes);  // of any bytes

// Places in a segment of `num_slots` slots for pages of `page_bytes`.
int64_t SegmentEntryAt(size_t slot);
int64_t SegmentMarksAt(size_t num_slots);
int64_t SegmentRecordAt(size_t slot, size_t num_slots, size_t page_bytes);
inline int64_t SegmentBytes(size_t num_slots, size_t page_bytes) {
  return SegmentRecordAt(num_slots, num_slots, page_bytes);
}

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_SEGMENT_LAYOUT_H_
