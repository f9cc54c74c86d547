// File: cc/program/weights/mapped_file.h
// A file mapped read-only, unmapped when the object dies. Pages are read when they are first
// touched and can be dropped again by the system, so mapping costs no memory. Processes share them.
//
//   PM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open("/models/smol.gguf"));
//   std::span<const std::byte> bytes = file.bytes();
//
// A file that is truncated while it is mapped raises SIGBUS on access; replace model files by
// renaming.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_MAPPED_FILE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "cc/base/status.h"

namespace pagemill::program {

class MappedFile {
 public:
  // How much of the file will be read.
  enum class Use {
    kParts,
    // All of it, again and again: the file lies at the border of a large page, and what is not in
    // memory yet is read in large pages where the file system has them (device/large_pages.h).
    kAll,
  };
  // kNotFound where the path does not exist, kInvalidArgument where it is not a regular file.
  static StatusOr<MappedFile> Open(const std::string& path, Use use = Use::kParts);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  // Lets the system take back what it has read; pages are read again when touched again.
  void DropPages() const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_MAPPED_FILE_H_
