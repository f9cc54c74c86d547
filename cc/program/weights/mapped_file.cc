#include "cc/program/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "cc/device/large_pages.h"

namespace pagemill::program {
namespace {

Status ErrnoStatus(const std::string& path, const char* call) {
  const int code = errno;
  const std::string message =
      std::string("cannot ") + call + " '" + path + "': " + std::generic_category().message(code);
  return code == ENOENT || code == ENOTDIR ? NotFound(message) : InvalidArgument(message);
}

// Maps at an address that is a multiple of `border`, which not every file system guarantees;
// returns MAP_FAILED and sets errno as mmap does.
void* MapAtBorder(int fd, size_t size, size_t border) {
  const size_t reserved = size + border;
  void* begin = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return MAP_FAILED;
  const size_t before = (border - reinterpret_cast<uintptr_t>(begin) % border) % border;
  std::byte* target = static_cast<std::byte*>(begin) + before;
  void* data = ::mmap(target, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    ::munmap(begin, reserved);
    errno = code;
    return MAP_FAILED;
  }
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t pages = (size + page - 1) / page * page;  // of the file
  if (before > 0) ::munmap(begin, before);
  ::munmap(target + pages, reserved - before - pages);
  return data;
}

void* Map(int fd, size_t size, MappedFile::Use use) {
  const size_t large =
      use == MappedFile::Use::kAll ? static_cast<size_t>(device::DetectLargePages().bytes) : 0;
  if (large == 0 || size < large) return ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  void* data = MapAtBorder(fd, size, large);
#ifdef MADV_HUGEPAGE
  // Advice: a kernel that has no large pages for files refuses.
  if (data != MAP_FAILED) ::madvise(data, size, MADV_HUGEPAGE);
#endif
  return data;
}

int64_t Nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileIdentity IdentityOf(const struct stat& info) {
  return {.inode = info.st_ino,
          .bytes = info.st_size,
          .modified_ns = Nanoseconds(info.st_mtim),
          .changed_ns = Nanoseconds(info.st_ctim)};
}

}  // namespace

StatusOr<MappedFile> MappedFile::Open(const std::string& path, Use use) {
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
    return MappedFile(path, IdentityOf(info));
  }
  void* data = Map(fd, size, use);
  if (data == MAP_FAILED) {
    Status status = ErrnoStatus(path, "map");
    ::close(fd);
    return status;
  }
  ::close(fd);  // the mapping keeps the file
  MappedFile file(path, IdentityOf(info));
  file.mapping_ = {static_cast<const std::byte*>(data),
                   [data, size](const std::byte*) { ::munmap(data, size); }};
  file.size_ = size;
  return file;
}

void MappedFile::DropPages() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(mapping_.get()), size_, MADV_DONTNEED);
}

}  // namespace pagemill::program
