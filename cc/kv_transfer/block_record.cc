#include "cc/kv_transfer/block_record.h"

#include <array>
#include <cstring>

#include "cc/base/endian.h"

namespace pagemill::kv_transfer {
namespace {

// Layout of the header, in bytes.
constexpr char kMagic[8] = {'P', 'M', 'K', 'V', 'B', 'L', 'K', '1'};
constexpr size_t kFingerprintAt = 8;
constexpr size_t kHashAt = 24;
constexpr size_t kGroupAt = 56;
constexpr size_t kSizeAt = 64;
constexpr size_t kChecksumAt = 72;  // of the block's bytes
constexpr size_t kEnd = 88;         // zero from here on

void StoreDigest(const Digest128& digest, std::byte* to) {
  StoreLittle64(digest.low, to);
  StoreLittle64(digest.high, to + 8);
}

}  // namespace

void EncodeRecordHeader(const RecordName& name, std::span<const std::byte> bytes,
                        std::span<std::byte> header) {
  PAGEMILL_CHECK(header.size() == kRecordHeaderBytes);
  std::memset(header.data(), 0, header.size());
  static_assert(kEnd <= kRecordHeaderBytes);
  std::memcpy(header.data(), kMagic, sizeof(kMagic));
  StoreDigest(name.fingerprint, &header[kFingerprintAt]);
  for (size_t i = 0; i < 4; ++i) StoreLittle64(name.hash.words[i], &header[kHashAt + 8 * i]);
  StoreLittle64(name.group.value(), &header[kGroupAt]);
  StoreLittle64(bytes.size(), &header[kSizeAt]);
  StoreDigest(Xxh3_128(bytes.data(), bytes.size()), &header[kChecksumAt]);
}

Status CheckRecord(const RecordName& name, std::span<const std::byte> header,
                   std::span<const std::byte> bytes) {
  std::array<std::byte, kRecordHeaderBytes> expected;
  EncodeRecordHeader(name, bytes, expected);
  if (header.size() != expected.size()) return DataLoss("a KV block without its header");
  const auto differs = [&](size_t begin, size_t end) {
    return std::memcmp(&header[begin], &expected[begin], end - begin) != 0;
  };
  if (differs(0, kFingerprintAt)) return DataLoss("this is not a KV block, or of another version");
  if (differs(kFingerprintAt, kHashAt)) return DataLoss("a KV block of another model or layout");
  if (differs(kHashAt, kSizeAt)) return DataLoss("a KV block with other tokens");
  if (differs(kSizeAt, kChecksumAt)) return DataLoss("a KV block of another size");
  if (differs(kChecksumAt, kRecordHeaderBytes)) return DataLoss("a damaged KV block (checksum)");
  return OkStatus();
}

kv_cache::ContentKey RecordKey(std::span<const std::byte> header) {
  PAGEMILL_CHECK(header.size() == kRecordHeaderBytes);
  kv_cache::ContentKey key;
  for (size_t i = 0; i < 4; ++i) key.hash.words[i] = LoadLittle64(&header[kHashAt + 8 * i]);
  // A group number that does not fit belongs to no model.
  const uint64_t group = LoadLittle64(&header[kGroupAt]);
  key.group = kv_cache::GroupId(static_cast<uint16_t>(group > 0xFFFF ? 0xFFFF : group));
  return key;
}

std::string HexName(const kv_cache::BlockHash& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name;
  for (uint64_t word : hash.words) {
    for (int shift = 60; shift >= 0; shift -= 4) name += kDigits[(word >> shift) & 15];
  }
  return name;
}

}  // namespace pagemill::kv_transfer
