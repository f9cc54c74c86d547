#include "cc/device/cache_sizes.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <fstream>

namespace pagemill::device {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "48K", "2048K" or "32M".
int64_t Bytes(const std::string& text) {
  char* end = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &end, 10);
  if (*end == 'K') return number << 10;
  if (*end == 'M') return number << 20;
  return number;
}

// The number of set bits in a hexadecimal mask, "ff,00000003".
int32_t CountBits(const std::string& mask) {
  int32_t bits = 0;
  for (const char digit : mask) {
    const char text[] = {digit, '\0'};
    if (std::isxdigit(static_cast<unsigned char>(digit))) {
      bits += std::popcount(static_cast<unsigned>(std::strtoul(text, nullptr, 16)));
    }
  }
  return bits;
}

}  // namespace

std::vector<CacheSize> DataCaches(const std::string& sysfs_root) {
  std::vector<CacheSize> caches;
  for (int index = 0;; ++index) {
    const std::string folder =
        sysfs_root + "/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string type = FirstLine(folder + "type");
    if (type.empty()) break;
    if (type == "Instruction") continue;
    const CacheSize cache = {.level = static_cast<int32_t>(
                                 std::strtol(FirstLine(folder + "level").c_str(), nullptr, 10)),
                             .bytes = Bytes(FirstLine(folder + "size")),
                             .cpus = CountBits(FirstLine(folder + "shared_cpu_map"))};
    if (cache.bytes > 0) caches.push_back(cache);
  }
  std::stable_sort(caches.begin(), caches.end(),
                   [](const CacheSize& a, const CacheSize& b) { return a.level < b.level; });
  return caches;
}

}  // namespace pagemill::device
