// File: cc/device/large_pages.h
// Large pages (2 MiB on most machines): whether memory that asks for them gets them, and how much
// of a mapping lies in them. The hardware's prefetch stops at the end of a page, so what lies in
// pages of 4 KiB is read up to a fifth slower (cc/ops/linear/README.md).
//
//   if (2 * BytesInLargePages(mapped) < size && DetectLargePages().on_request) Copy(mapped);
//
// A file's pages are large where the file system keeps such in memory (ext4 since Linux 6.16, XFS
// since 5.18) and they were read or written in large pieces. Thread-safe.
#ifndef PAGEMILL_CC_DEVICE_LARGE_PAGES_H_
#define PAGEMILL_CC_DEVICE_LARGE_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pagemill::device {

struct LargePages {
  int64_t bytes = 0;        // of one; 0 if the system has none or does not tell
  bool on_request = false;  // anonymous memory that is advised to use them does
};

// `sysfs_root` holds kernel/mm/transparent_hugepage.
LargePages DetectLargePages(const std::string& sysfs_root = "/sys");

// Of the mappings that `bytes` takes part in, the bytes in large pages, at most bytes.size(): exact
// for a mapping as a whole. What is not in memory yet does not count. 0 if the system does not
// tell. Cost: the system counts the pages of all mappings of the process below it, some 40 ms for 3
// GB in small ones. `procfs_root` holds self/smaps.
int64_t BytesInLargePages(std::span<const std::byte> bytes,
                          const std::string& procfs_root = "/proc");

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_LARGE_PAGES_H_
