// File: cc/kv_transfer/posix_file.h
// RAII files with statuses: complete reads and writes at offsets, and the steps for writing a file
// atomically.
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
  // Opens a new file for reading and writing; kFailedPrecondition if it exists, kInvalidArgument if
  // it cannot be created.
  static StatusOr<PosixFile> CreateNew(const std::string& path);
  // Likewise, beside `path`, under a unique name: "<path>.<six characters>.tmp". The caller renames
  // it to `path` once complete, or else removes it.
  static StatusOr<PosixFile> CreateTemporary(const std::string& path);
  // Opens for reading; kNotFound if the file does not exist. Does not wait for the other end of a
  // pipe.
  static StatusOr<PosixFile> OpenToRead(const std::string& path);
  // POSIX shared memory, for reading and writing by this user; `name` begins with "/" and has no
  // other. Errors as of CreateNew() and OpenToRead(); kInvalidArgument if it is another user's.
  static StatusOr<PosixFile> CreateShared(const std::string& name);
  static StatusOr<PosixFile> OpenShared(const std::string& name);
  static void RemoveShared(const std::string& name);
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  PosixFile& operator=(PosixFile&&) = delete;

  const std::string& path() const { return path_; }
  StatusOr<int64_t> size() const;
  // Reads the whole span. kDataLoss if the file ends before, or cannot be read.
  Status ReadAt(int64_t offset, std::span<std::byte> to) const;
  // kResourceExhausted if there is no room, else kDataLoss.
  Status WriteAt(int64_t offset, std::span<const std::byte> from);
  // Extends the file to `bytes` and allocates the space; kResourceExhausted if there is none.
  Status Reserve(int64_t bytes);
  // Sets the size, without allocating space.
  Status Resize(int64_t bytes);
  // False if the lock of another opened file keeps it. It ends with the process or the object; a
  // child that was forked without exec() has it, too.
  enum class Lock { kShared, kExclusive };
  bool TryLock(Lock lock);
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
