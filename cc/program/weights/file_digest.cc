#include "cc/program/weights/file_digest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

namespace pagemill::program {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDigestChunk = 1 << 20;
constexpr int64_t kNumSamples = 16;
constexpr int64_t kSampleBytes = 4096;

// In this machine's byte order: each machine has its own folder.
struct Record {
  char magic[16] = {'p', 'a', 'g', 'e', 'm', 'i', 'l', 'l', ' ', 'd', 'i', 'g', 'e', 's', 't', '1'};
  Digest128 path;
  FileIdentity identity;
  Digest128 samples;
  Digest128 digest;
  Digest128 checksum;  // of the fields above
};

Digest128 Checksum(const Record& record) { return Xxh3_128(&record, offsetof(Record, checksum)); }

std::string Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

Digest128 DigestOfPath(const std::string& path) {
  const std::string absolute = Absolute(path);
  return Xxh3_128(absolute.data(), absolute.size());
}

// A digest of a few samples, from the first byte to the last.
Digest128 Samples(std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t length = std::min(size, kSampleBytes);
  std::vector<Digest128> digests;
  for (int64_t i = 0; i < kNumSamples; ++i) {
    const int64_t at = (size - length) * i / (kNumSamples - 1);
    digests.push_back(Xxh3_128(bytes.data() + at, static_cast<size_t>(length)));
  }
  return Xxh3_128(digests.data(), digests.size() * sizeof(Digest128));
}

Record MakeRecord(const MappedFile& file, const Digest128& digest) {
  Record record;
  record.path = DigestOfPath(file.path());
  record.identity = file.identity();
  record.samples = Samples(file.bytes());
  record.digest = digest;
  record.checksum = Checksum(record);
  return record;
}

bool SyncToDisk(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool synced = ::fsync(fd) == 0;
  ::close(fd);
  return synced;
}

bool IsSettled(const FileIdentity& identity, std::chrono::nanoseconds settled) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(std::max(identity.modified_ns, identity.changed_ns)) >=
         settled;
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

Digest128 DigestMemory::Of(const MappedFile& file, device::ThreadPool& pool) const {
  if (const std::optional<Digest128> known = Recall(file)) return *known;
  const Digest128 digest = ParallelDigest(file.bytes(), pool);
  Remember(file, digest);
  return digest;
}

std::string DigestMemory::PathFor(const std::string& path) const {
  const Digest128 key = DigestOfPath(path);
  char name[48];
  std::snprintf(name, sizeof(name), "/%016" PRIx64 "%016" PRIx64, key.high, key.low);
  return folder_ + name + std::string(kSuffix);
}

std::optional<Digest128> DigestMemory::Recall(const MappedFile& file) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = PathFor(file.path());
  Record found;
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(&found), sizeof(found))) return std::nullopt;
  // Samples are read last, when all else matches.
  if (!(found.checksum == Checksum(found)) || !(found.identity == file.identity())) {
    return std::nullopt;
  }
  const Record expected = MakeRecord(file, found.digest);
  if (std::memcmp(&found, &expected, sizeof(found)) != 0) return std::nullopt;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return found.digest;
}

void DigestMemory::Remember(const MappedFile& file, const Digest128& digest) const {
  std::error_code error;
  if (folder_.empty() || !IsSettled(file.identity(), settled_)) return;
  if (!SyncToDisk(file.path())) return;
  fs::create_directories(folder_, error);
  const Record record = MakeRecord(file, digest);
  const std::string path = PathFor(file.path());
  const std::string temporary = path + "." + std::to_string(::getpid()) + ".writing";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&record), sizeof(record));
  out.close();
  if (out) fs::rename(temporary, path, error);
  if (!out || error) fs::remove(temporary, error);
}

}  // namespace pagemill::program
