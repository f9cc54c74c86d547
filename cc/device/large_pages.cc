#include "cc/device/large_pages.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string_view>

namespace pagemill::device {
namespace {

constexpr std::string_view kFields[] = {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"};

// A mapping begins with a line "7f06ef600000-7f06f5200000 r--p ...", followed by its fields, one
// per line.
bool ParseRange(const std::string& line, uint64_t* begin, uint64_t* end) {
  char space = 0;
  return std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 "%c", begin, end, &space) == 3 &&
         space == ' ';
}

// "FilePmdMapped:     51200 kB"; 0 for other lines.
int64_t LargeBytesOf(const std::string& line) {
  for (std::string_view field : kFields) {
    int64_t kibibytes = 0;
    if (line.starts_with(field) &&
        std::sscanf(line.c_str() + field.size(), "%" SCNd64, &kibibytes) == 1) {
      return std::max<int64_t>(kibibytes, 0) * 1024;
    }
  }
  return 0;
}

}  // namespace

LargePages DetectLargePages(const std::string& sysfs_root) {
  const std::string folder = sysfs_root + "/kernel/mm/transparent_hugepage/";
  LargePages pages;
  int64_t bytes = 0;
  if (std::ifstream(folder + "hpage_pmd_size") >> bytes && bytes > 0) pages.bytes = bytes;
  std::string choice;  // "always [madvise] never"
  std::getline(std::ifstream(folder + "enabled"), choice);
  pages.on_request = pages.bytes > 0 && (choice.find("[always]") != std::string::npos ||
                                         choice.find("[madvise]") != std::string::npos);
  return pages;
}

int64_t BytesInLargePages(std::span<const std::byte> bytes, const std::string& procfs_root) {
  const uint64_t first = reinterpret_cast<uintptr_t>(bytes.data());
  const uint64_t last = first + bytes.size();
  int64_t large = 0;
  bool inside = false;
  std::ifstream mappings(procfs_root + "/self/smaps");
  for (std::string line; std::getline(mappings, line);) {
    uint64_t begin = 0;
    uint64_t end = 0;
    if (ParseRange(line, &begin, &end)) {  // ascending
      if (begin >= last) break;
      inside = end > first;
    } else if (inside) {
      large += LargeBytesOf(line);
    }
  }
  return std::min(large, static_cast<int64_t>(bytes.size()));
}

}  // namespace pagemill::device
