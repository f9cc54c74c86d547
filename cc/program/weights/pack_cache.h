// File: cc/program/weights/pack_cache.h
// A folder of packed weights: one start packs them, later starts map them, and processes share
// them.
//
//   const PackCache cache("/var/cache/pagemill/packed");
//   StatusOr<PackCache::Entry> entry = cache.Find(key, bytes, pool);   // mapped, checked
//   if (!entry.ok()) Status stored = cache.Store(key, packed, pool);
//
// One file per key: a header page (magic, key, size, checksum), then the bytes. Files are written
// under a temporary name and renamed, so no process sees a partial one; the checksum detects damage
// from a system crash or a disk. It is computed over all bytes each time that a file is found,
// until the file is a minute old; then the result is remembered (file_digest.h). Packs may fill the
// file system except for a tenth. The least recently used ones are removed for a new one, and any
// that was not used for 30 days. Several processes may use a folder at once.
//
// Weights are read faster from large pages (device/large_pages.h). Files are written in one piece
// and mapped such that the page cache holds them in large pages if the file system supports them.
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
  // `max_bytes` bounds the packs of the folder instead of the file system; `system_root` contains
  // this machine's sys and proc; `settled`: see DigestMemory.
  explicit PackCache(std::string folder, std::optional<int64_t> max_bytes = std::nullopt,
                     std::string system_root = "",
                     std::chrono::seconds settled = DigestMemory::kSettled)
      : folder_(std::move(folder)),
        max_bytes_(max_bytes),
        system_root_(std::move(system_root)),
        digests_(folder_, settled) {}

  // Digests of the files that packs are made from, remembered in the same folder.
  const DigestMemory& digests() const { return digests_; }

  struct Entry {
    MappedFile file;
    std::span<const std::byte> bytes;  // at a page boundary
    // True if most of it lies in small pages while private memory would lie in large ones: a copy
    // is read faster, but other processes do not share it. False if it is smaller than two large
    // pages.
    bool better_copied = false;
  };
  // kNotFound if no file has this key; kDataLoss, with its path, if it is damaged or has another
  // size.
  StatusOr<Entry> Find(const Digest128& key, int64_t bytes, device::ThreadPool& pool) const;
  // Creates the folder. kResourceExhausted if there is no room for `bytes`; kUnavailable, with the
  // path and the system's error, if it cannot be written.
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
