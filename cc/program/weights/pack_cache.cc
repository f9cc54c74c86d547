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
#include <vector>

#include "cc/device/large_pages.h"

namespace pagemill::program {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kDigestChunk = 1 << 20;
constexpr char kSuffix[] = ".packed";
constexpr char kTemporary[] = ".writing";
// A temporary file older than this belongs to a process that is gone.
constexpr std::chrono::hours kAbandoned{1};

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

std::vector<CachedFile> FilesOf(const std::string& folder) {
  std::vector<CachedFile> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const fs::file_time_type used = entry.last_write_time(error);
    if (error) continue;
    if (name.ends_with(kTemporary) && fs::file_time_type::clock::now() - used > kAbandoned) {
      fs::remove(entry.path(), error);
    } else if (name.ends_with(kSuffix)) {
      files.push_back({entry.path(), used, static_cast<int64_t>(entry.file_size(error))});
    }
  }
  return files;
}

}  // namespace

Digest128 ParallelDigest(std::span<const std::byte> bytes, device::ThreadPool& pool) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  std::vector<Digest128> digests((size + kDigestChunk - 1) / kDigestChunk);
  pool.ParallelFor(static_cast<int64_t>(digests.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * kDigestChunk;
      digests[i] = Xxh3_128(bytes.data() + at, std::min(kDigestChunk, size - at));
    }
  });
  return Xxh3_128(digests.data(), digests.size() * sizeof(Digest128));
}

std::string PackCache::PathOf(const Digest128& key) const {
  char name[48];
  std::snprintf(name, sizeof(name), "/%016" PRIx64 "%016" PRIx64, key.high, key.low);
  return folder_ + name + kSuffix;
}

std::optional<PackCache::Entry> PackCache::Find(const Digest128& key, int64_t bytes,
                                                device::ThreadPool& pool) const {
  const std::string path = PathOf(key);
  StatusOr<MappedFile> file = MappedFile::Open(path, MappedFile::Use::kAll);
  if (!file.ok()) return std::nullopt;
  const std::span<const std::byte> all = file->bytes();
  if (static_cast<int64_t>(all.size()) != kPageBytes + bytes) return std::nullopt;
  Header header;
  const Header expected;
  std::memcpy(&header, all.data(), sizeof(header));
  const std::span<const std::byte> payload = all.subspan(kPageBytes);
  if (std::memcmp(header.magic, expected.magic, sizeof(header.magic)) != 0 ||
      !(header.key == key) || header.bytes != bytes ||
      !(header.checksum == ParallelDigest(payload, pool))) {
    return std::nullopt;
  }
  std::error_code ignored;  // another process may have removed it: the mapping stays
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return Entry{*std::move(file), payload, BetterCopied(payload)};
}

bool PackCache::BetterCopied(std::span<const std::byte> mapped) const {
  const device::LargePages pages = device::DetectLargePages(system_root_ + "/sys");
  const int64_t size = static_cast<int64_t>(mapped.size());
  return pages.on_request && size >= 2 * pages.bytes &&
         2 * device::BytesInLargePages(mapped, system_root_ + "/proc") < size;
}

void PackCache::MakeRoom(int64_t bytes) const {
  std::vector<CachedFile> files = FilesOf(folder_);
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
  int64_t total = bytes;
  for (const CachedFile& file : files) total += file.bytes;
  std::error_code ignored;
  for (const CachedFile& file : files) {
    if (total <= max_bytes_) return;
    fs::remove(file.path, ignored);
    total -= file.bytes;
  }
}

Status PackCache::Store(const Digest128& key, std::span<const std::byte> bytes,
                        device::ThreadPool& pool) const {
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size + kPageBytes > max_bytes_) {
    return ResourceExhausted("packed weights of " + std::to_string(size) +
                             " bytes exceed the bound of '" + folder_ + "', " +
                             std::to_string(max_bytes_));
  }
  const auto failure = [](const std::string& path) {
    return Unavailable("cannot write '" + path + "': " + std::strerror(errno));
  };
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return Unavailable("cannot create '" + folder_ + "': " + error.message());
  MakeRoom(size + kPageBytes);
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
    // At once: in small pieces, the page cache would hold it in small pages.
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
