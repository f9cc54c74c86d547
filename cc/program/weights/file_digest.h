// File: cc/program/weights/file_digest.h
// Digests of whole files, computed once. A folder stores them: a file is not read again while its
// size, inode and times and the bytes of a few samples are unchanged.
//
//   const DigestMemory memory("/var/cache/pagemill/packed");
//   const Digest128 digest = memory.Of(file, pool);
//
// One small file per path, written under a temporary name and renamed. Several processes may use a
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

// The digest of `bytes`, computed on all threads.
Digest128 ParallelDigest(std::span<const std::byte> bytes, device::ThreadPool& pool);

class DigestMemory {
 public:
  // The suffix of its files. Their modification time is the time of last use.
  static constexpr std::string_view kSuffix = ".digest";

  // A file modified more recently than this is not remembered: it may change again without a new
  // time, since file systems round times, and may not be on disk yet.
  static constexpr std::chrono::seconds kSettled{60};

  // An empty folder remembers nothing.
  explicit DigestMemory(std::string folder, std::chrono::seconds settled = kSettled)
      : folder_(std::move(folder)), settled_(settled) {}

  // The digest of the whole file: remembered, or computed and remembered.
  Digest128 Of(const MappedFile& file, device::ThreadPool& pool) const;

  // The digest that is remembered for the file in its present state. Reads 64 KiB of it.
  std::optional<Digest128> Recall(const MappedFile& file) const;
  // Waits until the file is on disk, so that a crash cannot leave other bytes than those
  // remembered. Does nothing if the file is not settled or the folder is not writable.
  void Remember(const MappedFile& file, const Digest128& digest) const;

  std::string PathFor(const std::string& path) const;  // of the record for this path

 private:
  std::string folder_;
  std::chrono::seconds settled_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_FILE_DIGEST_H_
