#include "cc/kv_transfer/segment_layout.h"

#include <algorithm>
#include <cstring>

#include "cc/base/endian.h"
#include "cc/kv_transfer/block_record.h"

namespace pagemill::kv_transfer {
namespace {

constexpr size_t kFingerprintAt = 8;
constexpr size_t kSlotsAt = 24;
constexpr size_t kPageBytesAt = 32;
constexpr size_t kChecksumAt = 40;  // of what comes before it

constexpr size_t kEntryHashAt = 8;
constexpr size_t kEntryGroupAt = 40;
constexpr size_t kEntryNumberAt = 48;

}  // namespace

SegmentHeader EncodeSegmentHeader(const SegmentFormat& format, uint64_t num_slots) {
  SegmentHeader header = {};
  std::memcpy(header.data(), kSegmentMagic, sizeof(kSegmentMagic));
  StoreLittle64(format.fingerprint.low, &header[kFingerprintAt]);
  StoreLittle64(format.fingerprint.high, &header[kFingerprintAt + 8]);
  StoreLittle64(num_slots, &header[kSlotsAt]);
  StoreLittle64(format.page_bytes, &header[kPageBytesAt]);
  const Digest128 checksum = Xxh3_128(header.data(), kChecksumAt);
  StoreLittle64(checksum.low, &header[kChecksumAt]);
  StoreLittle64(checksum.high, &header[kChecksumAt + 8]);
  return header;
}

uint64_t SegmentHeaderSlots(const SegmentHeader& header) { return LoadLittle64(&header[kSlotsAt]); }

std::array<std::byte, kSegmentEntryBytes> EncodeSegmentEntry(const SegmentEntry& entry) {
  std::array<std::byte, kSegmentEntryBytes> bytes = {};
  StoreLittle64(entry.sequence, bytes.data());
  for (size_t i = 0; i < 4; ++i) {
    StoreLittle64(entry.key.hash.words[i], &bytes[kEntryHashAt + 8 * i]);
  }
  StoreLittle64(entry.key.group.value(), &bytes[kEntryGroupAt]);
  StoreLittle64(entry.number, &bytes[kEntryNumberAt]);
  return bytes;
}

SegmentEntry DecodeSegmentEntry(const std::byte* bytes) {
  SegmentEntry entry;
  entry.sequence = LoadLittle64(bytes);
  for (size_t i = 0; i < 4; ++i) {
    entry.key.hash.words[i] = LoadLittle64(bytes + kEntryHashAt + 8 * i);
  }
  // A group number that does not fit belongs to no model.
  const uint64_t group = std::min<uint64_t>(LoadLittle64(bytes + kEntryGroupAt), 0xFFFF);
  entry.key.group = kv_cache::GroupId(static_cast<uint16_t>(group));
  entry.number = LoadLittle64(bytes + kEntryNumberAt);
  return entry;
}

int64_t SegmentEntryAt(size_t slot) {
  return kSegmentDirectoryAt + static_cast<int64_t>(slot * kSegmentEntryBytes);
}

int64_t SegmentMarksAt(size_t num_slots) { return SegmentEntryAt(num_slots); }

int64_t SegmentRecordAt(size_t slot, size_t num_slots, size_t page_bytes) {
  return SegmentMarksAt(num_slots) + static_cast<int64_t>(num_slots * kSegmentMarkBytes) +
         static_cast<int64_t>(slot * (kRecordHeaderBytes + page_bytes));
}

}  // namespace pagemill::kv_transfer
