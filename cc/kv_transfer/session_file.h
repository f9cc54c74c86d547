// File: cc/kv_transfer/session_file.h
// A saved session: the tokens of a conversation and their KV pages, in one file that outlives the
// process.
//
//   PAGEMILL_RETURN_IF_ERROR(WriteSession(path, layout, tokens, contents, pages));
//   PAGEMILL_ASSIGN_OR_RETURN(SessionReader reader, SessionReader::Open(path, layout));
//   PAGEMILL_RETURN_IF_ERROR(reader.Read({hash, group}, bytes));   // a page of reader.token_ids()
//
// Layout, all numbers little endian: a header of 64 bytes (magic, version, fingerprint, block size,
// numbers of cached tokens, tokens and pages, page sizes), the tokens, a block record per page
// (block_record.h), and a digest over header, tokens and the headers of all records, which contain
// the checksums of their bytes. A file is written under a temporary name, synced and renamed.
// Reading is safe for any file content: sizes are checked against the file's size before anything
// is allocated.
#ifndef PAGEMILL_CC_KV_TRANSFER_SESSION_FILE_H_
#define PAGEMILL_CC_KV_TRANSFER_SESSION_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/posix_file.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

// Properties that a session's reader must share with its writer.
struct SessionLayout {
  Digest128 fingerprint;           // of the model, its weights and its KV format
  int32_t block_size = 0;          // tokens
  std::vector<size_t> page_bytes;  // by group
};

// Saves `contents`, whose pages must suffice to continue after the first `num_cached_tokens` of
// `token_ids` and must not change meanwhile. Replaces an existing file.
Status WriteSession(const std::string& path, const SessionLayout& layout,
                    std::span<const int32_t> token_ids, int32_t num_cached_tokens,
                    std::span<const kv_cache::BlockContent> contents, const step::PageStore& pages);

class SessionReader {
 public:
  // Checks everything except the bytes of the pages. kNotFound if there is no file, kDataLoss if it
  // is damaged or not a session, kFailedPrecondition if it belongs to another model or layout.
  static StatusOr<SessionReader> Open(const std::string& path, const SessionLayout& layout);

  const std::vector<int32_t>& token_ids() const { return token_ids_; }
  int32_t num_cached_tokens() const { return num_cached_tokens_; }
  int64_t num_pages() const { return static_cast<int64_t>(offsets_.size()); }
  // The page with this content. kNotFound if the session has none, kDataLoss if it is
  // damaged.
  Status Read(const kv_cache::ContentKey& key, std::span<std::byte> bytes) const;

 private:
  SessionReader(PosixFile file, const SessionLayout& layout)
      : file_(std::move(file)), layout_(layout) {}
  Status ReadHeader(std::span<const std::byte> header);
  Status ReadTokens(std::vector<std::byte>* digested);
  Status ReadRecordHeaders(int64_t end, std::vector<std::byte>* digested);

  PosixFile file_;
  SessionLayout layout_;
  int64_t num_tokens_ = 0;
  int32_t num_cached_tokens_ = 0;
  int64_t num_pages_ = 0;
  std::vector<int32_t> token_ids_;
  std::unordered_map<kv_cache::ContentKey, int64_t, kv_cache::ContentKeyHash>
      offsets_;  // of the records
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_SESSION_FILE_H_
