// File: cc/program/weights/pack_cache.h
// A folder of packed weights: what one start has packed the next ones map, and processes share.
//
//   const PackCache cache("/var/cache/pagemill/packed");
//   std::optional<PackCache::Entry> entry = cache.Find(key, bytes, pool);   // mapped, checked
//   if (!entry) Status stored = cache.Store(key, packed, pool);
//
// One file a key: a header of a page (magic, key, size, checksum), then the bytes. Files are
// written under another name and renamed, so nobody sees half of one; the checksum catches what a
// crash of the system or a disk leaves behind. Where a new file would bring the folder above its
// bound, those not used for longest are removed. Several processes may use a folder at once.
//
// Weights are read faster from large pages (device/large_pages.h). Files are written in one piece
// and mapped so that the page cache holds them in such pages where the file system can.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_PACK_CACHE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_PACK_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/device/thread_pool.h"
#include "cc/program/weights/mapped_file.h"

namespace pagemill::program {

// The digest of `bytes`, computed by all threads.
Digest128 ParallelDigest(std::span<const std::byte> bytes, device::ThreadPool& pool);

class PackCache {
 public:
  static constexpr int64_t kMaxBytes = int64_t{32} << 30;  // of all files of a folder

  // `system_root` holds sys and proc of this machine.
  explicit PackCache(std::string folder, int64_t max_bytes = kMaxBytes,
                     std::string system_root = "")
      : folder_(std::move(folder)), max_bytes_(max_bytes), system_root_(std::move(system_root)) {}

  struct Entry {
    MappedFile file;
    std::span<const std::byte> bytes;  // at a page boundary
    // Most of it lies in small pages, and memory of one's own would lie in large ones: a copy is
    // read faster, but shared by nobody. Never where it is smaller than two large pages.
    bool better_copied = false;
  };
  // Nothing where there is no whole file of this key and size. Reads all of it.
  std::optional<Entry> Find(const Digest128& key, int64_t bytes, device::ThreadPool& pool) const;
  // Creates the folder. kResourceExhausted where `bytes` exceeds the folder's bound;
  // kUnavailable, with the path and the system's words, where it cannot be written.
  Status Store(const Digest128& key, std::span<const std::byte> bytes,
               device::ThreadPool& pool) const;

 private:
  std::string PathOf(const Digest128& key) const;
  void MakeRoom(int64_t bytes) const;
  bool BetterCopied(std::span<const std::byte> mapped) const;

  std::string folder_;
  int64_t max_bytes_;
  std::string system_root_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_PACK_CACHE_H_
