#include "cc/program/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace pagemill::program {
namespace {

Status ErrnoStatus(const std::string& path, const char* call) {
  const int code = errno;
  const std::string message =
      std::string("cannot ") + call + " '" + path + "': " + std::generic_category().message(code);
  return code == ENOENT || code == ENOTDIR ? NotFound(message) : InvalidArgument(message);
}

}  // namespace

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(path, "open");
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    Status status = ErrnoStatus(path, "stat");
    ::close(fd);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument("'" + path + "' is not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {  // mmap refuses an empty range
    ::close(fd);
    return MappedFile(std::span<const std::byte>());
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) {
    Status status = ErrnoStatus(path, "map");
    ::close(fd);
    return status;
  }
  ::close(fd);  // the mapping keeps the file
  return MappedFile(std::span(static_cast<const std::byte*>(data), size));
}

void MappedFile::DropPages() const {
  if (bytes_.empty()) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace pagemill::program
