// File: cc/program/weights/file_digest.h
// Digests of whole files, computed once. A folder remembers them: while a file has the size, inode
// and times that it had then, and the same bytes in a few places, it is not read again.
//
//   const DigestMemory memory("/var/cache/pagemill/packed");
//   const Digest128 digest = memory.Of(file, pool);
//
// One small file per path, written under another name and renamed. Several processes may use a
// folder at once. Thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_FILE_DIGEST_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_FILE_DIGEST_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cc/base/xxh3.h"
#include "cc/device/thread_pool.h"
#include "cc/program/weights/mapped_file.h"

namespace pagemill::program {

// The digest of `bytes`, computed by all threads.
Digest128 ParallelDigest(std::span<const std::byte> bytes, device::ThreadPool& pool);

class DigestMemory {
 public:
  // The ending of its files. The time of last use is their modification time.
  static constexpr std::string_view kSuffix = ".digest";

  // A file that changed less than so long ago may change again without a new time, since file
  // systems round times, and may not be on disk yet: it is not remembered.
  static constexpr std::chrono::seconds kSettled{60};

  // An empty folder remembers nothing.
  explicit DigestMemory(std::string folder, std::chrono::seconds settled = kSettled)
      : folder_(std::move(folder)), settled_(settled) {}

  // The digest of all bytes of the file: remembered, or computed and remembered.
  Digest128 Of(const MappedFile& file, device::ThreadPool& pool) const;

  // What was remembered of the file as it is now. Reads 64 KiB of it.
  std::optional<Digest128> Recall(const MappedFile& file) const;
  // Waits until the file is on disk, so that no crash leaves other bytes under what is remembered.
  // Nothing is remembered of a file that is not settled, or in a folder that cannot be written.
  void Remember(const MappedFile& file, const Digest128& digest) const;

  std::string PathFor(const std::string& path) const;  // of what is remembered of this path

 private:
  std::string folder_;
  std::chrono::seconds settled_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_FILE_DIGEST_H_
