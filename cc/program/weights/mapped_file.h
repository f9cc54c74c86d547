// File: cc/program/weights/mapped_file.h
// A file mapped read-only; copies share the mapping, and the last one unmaps it. Pages are read
// when first touched and the system may drop them again, so mapping itself takes no memory.
// Processes share the pages.
//
//   PAGEMILL_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open("/models/smol.gguf"));
//   std::span<const std::byte> bytes = file.bytes();
//
// A file that is truncated while it is mapped raises SIGBUS on access; replace model files by
// renaming.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_MAPPED_FILE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cc/base/status.h"

namespace pagemill::program {

// File system metadata at the time of mapping. Only the system sets `changed_ns`, so a change of
// content that keeps all of these requires tampering with the clock or the disk.
struct FileIdentity {
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;  // since the epoch
  int64_t changed_ns = 0;   // likewise, for content or attributes
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

class MappedFile {
 public:
  // How much of the file will be read.
  enum class Use {
    kParts,
    // All of it, repeatedly: the mapping is aligned to a large page, and bytes that are not in
    // memory yet are read in large pages if the file system supports them (device/large_pages.h).
    kAll,
  };
  // kNotFound if the path does not exist, kInvalidArgument if it is not a regular file.
  static StatusOr<MappedFile> Open(const std::string& path, Use use = Use::kParts);

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  std::span<const std::byte> bytes() const { return {mapping_.get(), size_}; }
  // Lets the system reclaim the pages that were read; they are read again when touched again.
  void DropPages() const;

 private:
  MappedFile(std::string path, const FileIdentity& identity)
      : path_(std::move(path)), identity_(identity) {}

  std::string path_;
  FileIdentity identity_;
  std::shared_ptr<const std::byte> mapping_;  // null: the file is empty
  size_t size_ = 0;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_MAPPED_FILE_H_
