// File: cc/program/weights/pack_cache.h
// A folder of packed weights: what one start has packed the next ones map, and processes share.
//
//   const PackCache cache("/var/cache/pagemill/packed");
//   StatusOr<PackCache::Entry> entry = cache.Find(key, bytes, pool);   // mapped, checked
//   if (!entry.ok()) Status stored = cache.Store(key, packed, pool);
//
// One file a key: a header of a page (magic, key, size, checksum), then the bytes. Files are
// written under another name and renamed, so no process sees half of one; the checksum catches what
// a crash of the system or a disk leaves behind. It is computed over all bytes each time that a
// file is found, until the file is a minute old; then the result is remembered (file_digest.h).
// Packs may take what leaves a tenth of the file system free. Those not used for longest are
// removed for a new one, and those not used for 30 days in any case. Several processes may use a
// folder at once.
//
// Weights are read faster from large pages (device/large_pages.h). Files are written in one piece
// and mapped so that the page cache holds them in such pages where the file system can.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_PACK_CACHE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_PACK_CACHE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/device/thread_pool.h"
#include "cc/program/weights/file_digest.h"
#include "cc/program/weights/mapped_file.h"

namespace pagemill::program {

class PackCache {
 public:
  // `max_bytes` bounds the packs of the folder instead of the file system; `system_root` holds sys
  // and proc of this machine; `settled`: see DigestMemory.
  explicit PackCache(std::string folder, std::optional<int64_t> max_bytes = std::nullopt,
                     std::string system_root = "",
                     std::chrono::seconds settled = DigestMemory::kSettled)
      : folder_(std::move(folder)),
        max_bytes_(max_bytes),
        system_root_(std::move(system_root)),
        digests_(folder_, settled) {}

  // Of the files that are packed, remembered in the same folder.
  const DigestMemory& digests() const { return digests_; }

  struct Entry {
    MappedFile file;
    std::span<const std::byte> bytes;  // at a page boundary
    // Most of it lies in small pages, and memory of one's own would lie in large ones: a copy is
    // read faster, but no other process shares it. Never if it is smaller than two large pages.
    bool better_copied = false;
  };
  // kNotFound if there is no file of this key; kDataLoss, with its path, if it is not whole or of
  // another size.
  StatusOr<Entry> Find(const Digest128& key, int64_t bytes, device::ThreadPool& pool) const;
  // Creates the folder. kResourceExhausted if there is no room for `bytes`; kUnavailable, with the
  // path and the system's words, if it cannot be written.
  Status Store(const Digest128& key, std::span<const std::byte> bytes,
               device::ThreadPool& pool) const;

 private:
  std::string PathOf(const Digest128& key) const;
  Status MakeRoom(int64_t bytes) const;
  Status CheckWhole(const MappedFile& file, const Digest128& key, int64_t bytes,
                    device::ThreadPool& pool) const;
  bool BetterCopied(std::span<const std::byte> mapped, device::ThreadPool& pool) const;

  std::string folder_;
  std::optional<int64_t> max_bytes_;
  std::string system_root_;
  DigestMemory digests_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_PACK_CACHE_H_
