// File: cc/kv_transfer/posix_file.h
// Files as values with statuses: whole reads and writes at offsets, and the steps of writing a file
// so that it is there whole or not at all.
//
//   PAGEMILL_ASSIGN_OR_RETURN(PosixFile file, PosixFile::CreateTemporary(path));
//   PAGEMILL_RETURN_IF_ERROR(file.WriteAt(0, bytes));
//   PAGEMILL_RETURN_IF_ERROR(file.Sync());
//   PAGEMILL_RETURN_IF_ERROR(RenameFile(file.path(), path));
//   PAGEMILL_RETURN_IF_ERROR(SyncFolderOf(path));
//
// Thread safety: none for one object.
#ifndef PAGEMILL_CC_KV_TRANSFER_POSIX_FILE_H_
#define PAGEMILL_CC_KV_TRANSFER_POSIX_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "cc/base/status.h"

namespace pagemill::kv_transfer {

class PosixFile {
 public:
  // For reading and writing; kFailedPrecondition if it exists, kInvalidArgument if it cannot
  // be made.
  static StatusOr<PosixFile> CreateNew(const std::string& path);
  // The same, beside `path`, under a name that no other file has: "<path>.<six characters>.tmp".
  // For what is renamed to `path` when it is whole; a caller that does not rename it removes it.
  static StatusOr<PosixFile> CreateTemporary(const std::string& path);
  // For reading; kNotFound if there is none. Does not wait for the other end of a pipe.
  static StatusOr<PosixFile> OpenToRead(const std::string& path);
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  PosixFile& operator=(PosixFile&&) = delete;

  const std::string& path() const { return path_; }
  StatusOr<int64_t> size() const;
  // All of the span. kDataLoss if the file ends before, or cannot be read.
  Status ReadAt(int64_t offset, std::span<std::byte> to) const;
  // kResourceExhausted if there is no room, else kDataLoss.
  Status WriteAt(int64_t offset, std::span<const std::byte> from);
  // Makes the file `bytes` long and takes the space for it; kResourceExhausted if there is none.
  Status Reserve(int64_t bytes);
  Status Sync();

 private:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

// Replaces `to`. Survives a loss of power once SyncFolderOf(to) is done.
Status RenameFile(const std::string& from, const std::string& to);
Status SyncFolderOf(const std::string& path);
Status RemoveFile(const std::string& path);

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_POSIX_FILE_H_
