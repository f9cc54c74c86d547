// File: cc/kv_transfer/block_record.h
// Storage format of a block's bytes on media that may corrupt them: a header that identifies them,
// with a checksum, then the bytes. Numbers are little endian.
//
//   std::array<std::byte, kRecordHeaderBytes> header;
//   EncodeRecordHeader(name, bytes, header);
//   ... written and read back ...
//   PAGEMILL_RETURN_IF_ERROR(CheckRecord(name, header, bytes));
//
// The fingerprint covers everything besides tokens that the bytes depend on: model, weights,
// layout.
#ifndef PAGEMILL_CC_KV_TRANSFER_BLOCK_RECORD_H_
#define PAGEMILL_CC_KV_TRANSFER_BLOCK_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/kv_cache/block.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/tiers/content_key.h"

namespace pagemill::kv_transfer {

inline constexpr size_t kRecordHeaderBytes = 96;

struct RecordName {
  Digest128 fingerprint;
  kv_cache::BlockHash hash;
  kv_cache::GroupId group;
};

// Writes the header of `bytes` to `header`, which has kRecordHeaderBytes bytes.
void EncodeRecordHeader(const RecordName& name, std::span<const std::byte> bytes,
                        std::span<std::byte> header);
// OK if `header` is that of `name` and of exactly these bytes; else kDataLoss with the difference.
Status CheckRecord(const RecordName& name, std::span<const std::byte> header,
                   std::span<const std::byte> bytes);

// The content that a header claims; meaningless unless it was checked.
kv_cache::ContentKey RecordKey(std::span<const std::byte> header);

// 64 hexadecimal digits "0123abcd...": the same on every machine.
std::string HexName(const kv_cache::BlockHash& hash);

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_BLOCK_RECORD_H_
