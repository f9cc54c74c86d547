// File: cc/device/large_pages.h
// Large pages (2 MiB on most machines): whether memory that requests them gets them, and how much
// of a mapping is in them. Hardware prefetch stops at the end of a page, so data in pages of 4 KiB
// is read up to a fifth slower (cc/ops/linear/README.md).
//
//   if (2 * BytesInLargePages(mapped) < size && DetectLargePages().on_request) Copy(mapped);
//
// A file has large pages if its file system supports them in the page cache (ext4 since Linux 6.16,
// XFS since 5.18) and it was read or written in large pieces. Thread-safe.
#ifndef PAGEMILL_CC_DEVICE_LARGE_PAGES_H_
#define PAGEMILL_CC_DEVICE_LARGE_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pagemill::device {

struct LargePages {
  int64_t bytes = 0;        // of one page; 0 if unsupported or unknown
  bool on_request = false;  // madvise() gives anonymous memory large pages
};

// `sysfs_root` holds kernel/mm/transparent_hugepage.
LargePages DetectLargePages(const std::string& sysfs_root = "/sys");

// The bytes in large pages in all mappings that overlap `bytes`, at most bytes.size(): exact for a
// whole mapping. Bytes that are not in memory do not count. 0 if unknown. Cost: the system counts
// the pages of all mappings of the process below it, some 40 ms for 3 GB in small pages.
// `procfs_root` contains self/smaps.
int64_t BytesInLargePages(std::span<const std::byte> bytes,
                          const std::string& procfs_root = "/proc");

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_LARGE_PAGES_H_
