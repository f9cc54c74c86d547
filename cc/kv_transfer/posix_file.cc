#include "cc/kv_transfer/posix_file.h"

#include <fcntl.h>
#include <stdlib.h>  // mkostemps
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace pagemill::kv_transfer {
namespace {

std::string Why(const std::string& what, const std::string& path, int error) {
  return what + " \"" + path + "\": " + std::strerror(error);
}

Status MakeFailed(const std::string& path, int error) {
  const std::string why = Why("cannot make", path, error);
  return error == EEXIST ? FailedPrecondition(why) : InvalidArgument(why);
}

Status WriteFailed(const std::string& path, int error) {
  const std::string why = Why("cannot write", path, error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return ResourceExhausted(why);
  return DataLoss(why);
}

}  // namespace

StatusOr<PosixFile> PosixFile::CreateNew(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return MakeFailed(path, errno);
  return PosixFile(fd, path);
}

StatusOr<PosixFile> PosixFile::CreateTemporary(const std::string& path) {
  constexpr char kEnding[] = ".tmp";
  std::string name = path + ".XXXXXX" + kEnding;
  const int fd = ::mkostemps(name.data(), sizeof(kEnding) - 1, O_CLOEXEC);
  if (fd < 0) return MakeFailed(path, errno);
  return PosixFile(fd, name);
}

StatusOr<PosixFile> PosixFile::OpenToRead(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) return PosixFile(fd, path);
  const int error = errno;
  const std::string why = Why("cannot open", path, error);
  if (error == ENOENT) return NotFound(why);
  return InvalidArgument(why);
}

StatusOr<PosixFile> PosixFile::CreateShared(const std::string& name) {
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0) return MakeFailed(name, errno);
  return PosixFile(fd, name);
}

StatusOr<PosixFile> PosixFile::OpenShared(const std::string& name) {
  const int fd = ::shm_open(name.c_str(), O_RDWR, 0);
  if (fd < 0) {
    const int error = errno;
    const std::string why = Why("cannot open the shared memory", name, error);
    if (error == ENOENT) return NotFound(why);
    return InvalidArgument(why);
  }
  PosixFile file(fd, name);
  struct stat found = {};
  if (::fstat(fd, &found) != 0 || found.st_uid != ::geteuid()) {
    return InvalidArgument("the shared memory \"" + name + "\" is another user's");
  }
  return file;
}

void PosixFile::RemoveShared(const std::string& name) { (void)::shm_unlink(name.c_str()); }

PosixFile::~PosixFile() {
  if (fd_ >= 0) ::close(fd_);
}

StatusOr<int64_t> PosixFile::size() const {
  struct stat found = {};
  if (::fstat(fd_, &found) != 0) return DataLoss(Why("cannot read", path_, errno));
  if (!S_ISREG(found.st_mode)) return InvalidArgument("\"" + path_ + "\" is not a file");
  return static_cast<int64_t>(found.st_size);
}

Status PosixFile::ReadAt(int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd_, to.data(), to.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return DataLoss(Why("cannot read", path_, errno));
    if (n == 0) return DataLoss("\"" + path_ + "\" ends too early");
    to = to.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

Status PosixFile::WriteAt(int64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t n = ::pwrite(fd_, from.data(), from.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteFailed(path_, errno);
    from = from.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

Status PosixFile::Reserve(int64_t bytes) {
  const int error = ::posix_fallocate(fd_, 0, bytes);
  return error == 0 ? OkStatus() : WriteFailed(path_, error);
}

Status PosixFile::Resize(int64_t bytes) {
  return ::ftruncate(fd_, bytes) == 0 ? OkStatus() : WriteFailed(path_, errno);
}

bool PosixFile::TryLock(Lock lock) {
  return ::flock(fd_, (lock == Lock::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0;
}

Status PosixFile::Sync() { return ::fsync(fd_) == 0 ? OkStatus() : WriteFailed(path_, errno); }

Status RenameFile(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0 ? OkStatus() : WriteFailed(to, errno);
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return WriteFailed(folder, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error == 0 ? OkStatus() : WriteFailed(folder, error);
}

Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return OkStatus();
  return InvalidArgument(Why("cannot remove", path, errno));
}

}  // namespace pagemill::kv_transfer
