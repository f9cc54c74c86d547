#include "cc/kv_transfer/shared_segment.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "cc/base/endian.h"
#include "cc/kv_transfer/block_record.h"

namespace pagemill::kv_transfer {
namespace {

using kv_cache::ContentKey;

constexpr char kFolder[] = "/dev/shm";  // where Linux lists shared memory

std::string RandomEngineId() {
  std::random_device random;
  char text[33];
  for (int i = 0; i < 4; ++i) {
    std::snprintf(text + 8 * i, 9, "%08x", static_cast<unsigned>(random() & 0xFFFFFFFFu));
  }
  return text;
}

// Removes the segments of processes that died. One without a whole header is being made.
void RemoveAbandoned() {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kSegmentPrefix)) names.push_back("/" + name);
  }
  for (const std::string& name : names) {
    StatusOr<PosixFile> file = PosixFile::OpenShared(name);
    SegmentHeader header = {};
    if (!file.ok() || !file->ReadAt(0, header).ok()) continue;
    const bool made = std::memcmp(header.data(), kSegmentMagic, sizeof(kSegmentMagic) - 1) == 0;
    if (made && file->TryLock(PosixFile::Lock::kShared)) PosixFile::RemoveShared(name);
  }
}

}  // namespace

StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(const Options& options) {
  const size_t page_bytes = options.format.page_bytes;
  const int64_t per_slot = SegmentBytes(1, page_bytes) - SegmentBytes(0, page_bytes);
  const int64_t num_slots =
      std::min(kMaxSegmentSlots, (options.bytes - SegmentBytes(0, page_bytes)) / per_slot);
  if (num_slots < 2) {
    return InvalidArgument("--kv-shared-memory-bytes: " + std::to_string(options.bytes) +
                           " bytes do not hold two KV blocks of " + std::to_string(per_slot) +
                           " bytes");
  }
  RemoveAbandoned();
  std::string engine_id = RandomEngineId();
  PAGEMILL_ASSIGN_OR_RETURN(PosixFile file, PosixFile::CreateShared(SegmentName(engine_id)));
  std::unique_ptr<SharedSegment> made(new SharedSegment(
      options, std::move(engine_id), std::move(file), static_cast<size_t>(num_slots)));
  if (!made->file_.TryLock(PosixFile::Lock::kExclusive)) {
    return Internal("another process holds the new shared memory \"" +
                    SegmentName(made->engine_id_) + "\"");
  }
  PAGEMILL_RETURN_IF_ERROR(made->WriteHeader());
  return made;
}

SharedSegment::SharedSegment(const Options& options, std::string engine_id, PosixFile file,
                             size_t num_slots)
    : options_(options),
      engine_id_(std::move(engine_id)),
      file_(std::move(file)),
      slots_(num_slots) {
  for (size_t slot = num_slots; slot-- > 0;) free_.push_back(slot);
}

SharedSegment::~SharedSegment() { PosixFile::RemoveShared(SegmentName(engine_id_)); }

// The header last: readers look at nothing before it is there.
Status SharedSegment::WriteHeader() {
  const size_t page_bytes = options_.format.page_bytes;
  PAGEMILL_RETURN_IF_ERROR(file_.Resize(SegmentBytes(slots_.size(), page_bytes)));
  return file_.WriteAt(0, EncodeSegmentHeader(options_.format, slots_.size()));
}

Status SharedSegment::WriteEntry(size_t slot, uint64_t number) {
  const Slot& s = slots_[slot];
  return file_.WriteAt(SegmentEntryAt(slot), EncodeSegmentEntry({s.sequence, s.key, number}));
}

// Frees slots that readers have taken, and those whose time is over.
Status SharedSegment::Reclaim(int64_t now_ms) {
  std::vector<std::byte> marks(slots_.size() * kSegmentMarkBytes);
  PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(SegmentMarksAt(slots_.size()), marks));
  for (size_t i = slots_.size(); i-- > 0;) {
    Slot& slot = slots_[i];
    const bool taken = LoadLittle64(&marks[i * kSegmentMarkBytes]) == slot.sequence;
    if (slot.sequence == 0 || (!taken && now_ms - slot.put_ms <= options_.keep_ms)) continue;
    index_.erase(slot.key);
    slot.sequence = 0;
    free_.push_back(i);
  }
  return OkStatus();
}

StatusOr<bool> SharedSegment::Put(const ContentKey& key, uint64_t number,
                                  std::span<const std::byte> bytes, int64_t now_ms) {
  PAGEMILL_CHECK(bytes.size() <= options_.format.page_bytes);
  if (const auto found = index_.find(key); found != index_.end()) {
    Slot& slot = slots_[found->second];
    slot.sequence = ++num_puts_;
    slot.put_ms = now_ms;
    PAGEMILL_RETURN_IF_ERROR(WriteEntry(found->second, number));
    return true;
  }
  if (free_.empty()) PAGEMILL_RETURN_IF_ERROR(Reclaim(now_ms));
  if (free_.empty()) return false;
  const size_t slot = free_.back();
  // Nothing finds the slot while it is written.
  PAGEMILL_RETURN_IF_ERROR(WriteEntry(slot, 0));
  std::array<std::byte, kRecordHeaderBytes> header;
  EncodeRecordHeader({options_.format.fingerprint, key.hash, key.group}, bytes, header);
  const int64_t at = SegmentRecordAt(slot, slots_.size(), options_.format.page_bytes);
  PAGEMILL_RETURN_IF_ERROR(file_.WriteAt(at, header));
  PAGEMILL_RETURN_IF_ERROR(file_.WriteAt(at + static_cast<int64_t>(kRecordHeaderBytes), bytes));
  slots_[slot] = {key, ++num_puts_, now_ms};
  free_.pop_back();
  index_.emplace(key, slot);
  PAGEMILL_RETURN_IF_ERROR(WriteEntry(slot, number));
  return true;
}

Status SharedSegment::SetDone(uint64_t number) {
  std::array<std::byte, 8> bytes;
  StoreLittle64(number, bytes.data());
  return file_.WriteAt(kSegmentDoneAt, bytes);
}

Status SharedSegment::Forget() {
  free_.clear();
  index_.clear();
  for (size_t slot = slots_.size(); slot-- > 0;) {
    if (slots_[slot].sequence != 0) {
      slots_[slot] = {};
      PAGEMILL_RETURN_IF_ERROR(WriteEntry(slot, 0));
    }
    free_.push_back(slot);
  }
  return OkStatus();
}

}  // namespace pagemill::kv_transfer
