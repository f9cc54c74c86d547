#include "cc/program/weights/pack_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "cc/device/large_pages.h"

namespace pagemill::program {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPageBytes = 4096;
constexpr char kSuffix[] = ".packed";
constexpr char kTemporary[] = ".writing";
// A temporary file older than this was left by a process that has died.
constexpr std::chrono::hours kAbandoned{1};
// Packs unused for this long are removed; they can be recreated.
constexpr std::chrono::hours kUnused{30 * 24};

struct Header {
  char magic[16] = {'p', 'a', 'g', 'e', 'm', 'i', 'l', 'l', ' ', 'p', 'a', 'c', 'k', ' ', '1'};
  Digest128 key;
  int64_t bytes = 0;
  Digest128 checksum;
};

struct CachedFile {
  fs::path path;
  fs::file_time_type used;
  int64_t bytes;
};

void Remove(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

// The packs, least recently used first. Removes files of dead processes and packs that were not
// used for long. A pack's digest file has its time of last use.
std::vector<CachedFile> TidyFiles(const std::string& folder, const DigestMemory& digests) {
  std::vector<CachedFile> packs;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    fs::file_time_type used = entry.last_write_time(error);
    if (error) continue;
    const bool pack = name.ends_with(kSuffix);
    if (pack) {
      const auto recalled = fs::last_write_time(digests.PathFor(entry.path().string()), error);
      if (!error) used = std::max(used, recalled);
    }
    if (name.ends_with(kTemporary)
            ? now - used > kAbandoned
            : (pack || name.ends_with(DigestMemory::kSuffix)) && now - used > kUnused) {
      Remove(entry.path());
    } else if (pack) {
      packs.push_back({entry.path(), used, static_cast<int64_t>(entry.file_size(error))});
    }
  }
  std::sort(packs.begin(), packs.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
  return packs;
}

// The bytes that packs may take, of which they take `taken` now: a tenth of the file system stays
// free.
int64_t Bound(const std::string& folder, int64_t taken) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return std::numeric_limits<int64_t>::max();  // writing will report the error
  return taken + static_cast<int64_t>(space.available) - static_cast<int64_t>(space.capacity / 10);
}

}  // namespace

std::string PackCache::PathOf(const Digest128& key) const {
  char name[48];
  std::snprintf(name, sizeof(name), "/%016" PRIx64 "%016" PRIx64, key.high, key.low);
  return folder_ + name + kSuffix;
}

Status PackCache::CheckWhole(const MappedFile& file, const Digest128& key, int64_t bytes,
                             device::ThreadPool& pool) const {
  const auto damaged = [&file](const char* what) {
    return DataLoss("'" + file.path() + "' is damaged: " + what);
  };
  const std::span<const std::byte> all = file.bytes();
  if (static_cast<int64_t>(all.size()) != kPageBytes + bytes) return damaged("its size differs");
  Header header;
  const Header expected;
  std::memcpy(&header, all.data(), sizeof(header));
  if (std::memcmp(header.magic, expected.magic, sizeof(header.magic)) != 0 ||
      !(header.key == key) || header.bytes != bytes) {
    return damaged("its header differs");
  }
  if (digests_.Recall(file) == header.checksum) return OkStatus();
  if (!(header.checksum == ParallelDigest(all.subspan(kPageBytes), pool))) {
    return damaged("its checksum differs");
  }
  digests_.Remember(file, header.checksum);
  return OkStatus();
}

StatusOr<PackCache::Entry> PackCache::Find(const Digest128& key, int64_t bytes,
                                           device::ThreadPool& pool) const {
  PAGEMILL_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(PathOf(key), MappedFile::Use::kAll));
  PAGEMILL_RETURN_IF_ERROR(CheckWhole(file, key, bytes, pool));
  const std::span<const std::byte> payload = file.bytes().subspan(kPageBytes);
  return Entry{std::move(file), payload, BetterCopied(payload, pool)};
}

bool PackCache::BetterCopied(std::span<const std::byte> mapped, device::ThreadPool& pool) const {
  const device::LargePages pages = device::DetectLargePages(system_root_ + "/sys");
  const int64_t size = static_cast<int64_t>(mapped.size());
  if (!pages.on_request || size < 2 * pages.bytes) return false;
  // Counts unread pages as small. Reading one byte brings in a large page, if there is one.
  pool.ParallelFor(size / pages.bytes, /*grain=*/8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const volatile std::byte* first = mapped.data() + i * pages.bytes;
      (void)*first;
    }
  });
  return 2 * device::BytesInLargePages(mapped, system_root_ + "/proc") < size;
}

Status PackCache::MakeRoom(int64_t bytes) const {
  const std::vector<CachedFile> packs = TidyFiles(folder_, digests_);
  int64_t taken = 0;
  for (const CachedFile& pack : packs) taken += pack.bytes;
  const int64_t bound = max_bytes_ ? *max_bytes_ : Bound(folder_, taken);
  if (bytes > bound) {
    return ResourceExhausted("packed weights of " + std::to_string(bytes) + " bytes exceed what '" +
                             folder_ + "' has room for, " +
                             std::to_string(std::max<int64_t>(bound, 0)));
  }
  for (const CachedFile& pack : packs) {
    if (taken + bytes <= bound) break;
    Remove(pack.path);
    Remove(digests_.PathFor(pack.path.string()));
    taken -= pack.bytes;
  }
  return OkStatus();
}

Status PackCache::Store(const Digest128& key, std::span<const std::byte> bytes,
                        device::ThreadPool& pool) const {
  const int64_t size = static_cast<int64_t>(bytes.size());
  const auto failure = [](const std::string& path) {
    return Unavailable("cannot write '" + path + "': " + std::strerror(errno));
  };
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return Unavailable("cannot create '" + folder_ + "': " + error.message());
  PAGEMILL_RETURN_IF_ERROR(MakeRoom(size + kPageBytes));
  Header header;
  header.key = key;
  header.bytes = size;
  header.checksum = ParallelDigest(bytes, pool);
  std::vector<char> page(kPageBytes);
  std::memcpy(page.data(), &header, sizeof(header));
  const std::string path = PathOf(key);
  const std::string temporary = path + "." + std::to_string(::getpid()) + kTemporary;
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(page.data(), kPageBytes);
    // In one call: in small pieces, the page cache would hold it in small pages.
    out.write(reinterpret_cast<const char*>(bytes.data()), size);
    out.flush();
    if (!out) {
      const Status status = failure(temporary);
      fs::remove(temporary, error);
      return status;
    }
  }
  fs::permissions(temporary, fs::perms::owner_read | fs::perms::owner_write, error);
  fs::rename(temporary, path, error);
  if (!error) return OkStatus();
  const Status status = Unavailable("cannot write '" + path + "': " + error.message());
  fs::remove(temporary, error);
  return status;
}

}  // namespace pagemill::program
