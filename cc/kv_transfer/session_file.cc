#include "cc/kv_transfer/session_file.h"

#include <array>
#include <cstring>
#include <utility>

#include "cc/base/endian.h"
#include "cc/kv_transfer/block_record.h"

namespace pagemill::kv_transfer {
namespace {

constexpr size_t kHeaderBytes = 64;
constexpr char kMagic[8] = {'P', 'M', 'S', 'E', 'S', 'S', '0', '2'};
// Offsets in the header.
constexpr size_t kFingerprintAt = 8;
constexpr size_t kBlockSizeAt = 24;
constexpr size_t kCachedTokensAt = 28;
constexpr size_t kTokensAt = 32;
constexpr size_t kPagesAt = 40;
constexpr size_t kPageSizesAt = 48;  // a digest of them
constexpr size_t kDigestBytes = 16;

void StoreDigest(const Digest128& digest, std::byte* to) {
  StoreLittle64(digest.low, to);
  StoreLittle64(digest.high, to + 8);
}

using Header = std::array<std::byte, kHeaderBytes>;

Header MakeHeader(const SessionLayout& layout, int32_t num_cached_tokens, size_t num_tokens,
                  size_t num_pages) {
  Header header = {};
  std::memcpy(header.data(), kMagic, sizeof(kMagic));
  StoreDigest(layout.fingerprint, &header[kFingerprintAt]);
  StoreLittle32(static_cast<uint32_t>(layout.block_size), &header[kBlockSizeAt]);
  StoreLittle32(static_cast<uint32_t>(num_cached_tokens), &header[kCachedTokensAt]);
  StoreLittle64(num_tokens, &header[kTokensAt]);
  StoreLittle64(num_pages, &header[kPagesAt]);
  std::vector<std::byte> sizes(8 * layout.page_bytes.size());
  for (size_t i = 0; i < layout.page_bytes.size(); ++i) {
    StoreLittle64(layout.page_bytes[i], &sizes[8 * i]);
  }
  StoreDigest(Xxh3_128(sizes.data(), sizes.size()), &header[kPageSizesAt]);
  return header;
}

// Appends to a file and updates the digest.
class Appender {
 public:
  explicit Appender(PosixFile* file) : file_(file) {}
  Status Append(std::span<const std::byte> bytes, bool digested) {
    if (digested) digested_.insert(digested_.end(), bytes.begin(), bytes.end());
    PAGEMILL_RETURN_IF_ERROR(file_->WriteAt(offset_, bytes));
    offset_ += static_cast<int64_t>(bytes.size());
    return OkStatus();
  }
  Status AppendDigest() {
    std::array<std::byte, kDigestBytes> digest;
    StoreDigest(Xxh3_128(digested_.data(), digested_.size()), digest.data());
    return Append(digest, false);
  }

 private:
  PosixFile* const file_;
  int64_t offset_ = 0;
  std::vector<std::byte> digested_;
};

Status WriteAll(PosixFile* file, const SessionLayout& layout, std::span<const int32_t> token_ids,
                int32_t num_cached_tokens, std::span<const kv_cache::BlockContent> contents,
                const step::PageStore& pages) {
  Appender out(file);
  PAGEMILL_RETURN_IF_ERROR(
      out.Append(MakeHeader(layout, num_cached_tokens, token_ids.size(), contents.size()), true));
  std::vector<std::byte> bytes(4 * token_ids.size());
  for (size_t i = 0; i < token_ids.size(); ++i) {
    StoreLittle32(static_cast<uint32_t>(token_ids[i]), &bytes[4 * i]);
  }
  PAGEMILL_RETURN_IF_ERROR(out.Append(bytes, true));
  std::array<std::byte, kRecordHeaderBytes> header;
  for (const kv_cache::BlockContent& content : contents) {
    bytes.resize(layout.page_bytes[content.group.value()]);
    PAGEMILL_RETURN_IF_ERROR(pages.Read(content.group, content.block, bytes));
    EncodeRecordHeader({layout.fingerprint, content.hash, content.group}, bytes, header);
    PAGEMILL_RETURN_IF_ERROR(out.Append(header, true));
    PAGEMILL_RETURN_IF_ERROR(out.Append(bytes, false));
  }
  PAGEMILL_RETURN_IF_ERROR(out.AppendDigest());
  return file->Sync();
}

Status Damaged(const PosixFile& file, const std::string& what) {
  return DataLoss("\"" + file.path() + "\" is not a whole saved session: " + what);
}

}  // namespace

Status WriteSession(const std::string& path, const SessionLayout& layout,
                    std::span<const int32_t> token_ids, int32_t num_cached_tokens,
                    std::span<const kv_cache::BlockContent> contents,
                    const step::PageStore& pages) {
  PAGEMILL_ASSIGN_OR_RETURN(PosixFile file, PosixFile::CreateTemporary(path));
  Status status = WriteAll(&file, layout, token_ids, num_cached_tokens, contents, pages);
  if (status.ok()) status = RenameFile(file.path(), path);
  if (status.ok()) return SyncFolderOf(path);
  (void)RemoveFile(file.path());
  return status;
}

StatusOr<SessionReader> SessionReader::Open(const std::string& path, const SessionLayout& layout) {
  PAGEMILL_ASSIGN_OR_RETURN(PosixFile file, PosixFile::OpenToRead(path));
  PAGEMILL_ASSIGN_OR_RETURN(const int64_t size, file.size());
  if (size < static_cast<int64_t>(kHeaderBytes + kDigestBytes)) {
    return Damaged(file, "it has " + std::to_string(size) + " bytes");
  }
  SessionReader reader(std::move(file), layout);
  std::vector<std::byte> digested(kHeaderBytes);
  PAGEMILL_RETURN_IF_ERROR(reader.file_.ReadAt(0, digested));
  PAGEMILL_RETURN_IF_ERROR(reader.ReadHeader(digested));
  const int64_t end = size - static_cast<int64_t>(kDigestBytes);
  const int64_t room = end - static_cast<int64_t>(kHeaderBytes);
  if (reader.num_tokens_ > room / 4 ||
      reader.num_pages_ > room / static_cast<int64_t>(kRecordHeaderBytes)) {
    return Damaged(reader.file_, "it is too short for its tokens and blocks");
  }
  PAGEMILL_RETURN_IF_ERROR(reader.ReadTokens(&digested));
  PAGEMILL_RETURN_IF_ERROR(reader.ReadRecordHeaders(end, &digested));
  std::array<std::byte, kDigestBytes> expected, found;
  StoreDigest(Xxh3_128(digested.data(), digested.size()), expected.data());
  PAGEMILL_RETURN_IF_ERROR(reader.file_.ReadAt(end, found));
  if (found != expected) return Damaged(reader.file_, "its checksum differs");
  return reader;
}

Status SessionReader::ReadHeader(std::span<const std::byte> header) {
  if (std::memcmp(header.data(), kMagic, sizeof(kMagic)) != 0) {
    return Damaged(file_, "it is not a session, or one of another version");
  }
  const uint64_t tokens = LoadLittle64(&header[kTokensAt]), pages = LoadLittle64(&header[kPagesAt]);
  constexpr uint64_t kMost = uint64_t{1} << 31;
  const uint32_t cached = LoadLittle32(&header[kCachedTokensAt]);
  if (tokens == 0 || tokens >= kMost || cached > tokens || pages >= kMost) {
    return Damaged(file_, "its numbers of tokens and blocks make no sense");
  }
  num_tokens_ = static_cast<int64_t>(tokens);
  num_cached_tokens_ = static_cast<int32_t>(cached);
  num_pages_ = static_cast<int64_t>(pages);
  const Header expected = MakeHeader(layout_, num_cached_tokens_, tokens, pages);
  if (std::memcmp(&header[kFingerprintAt], &expected[kFingerprintAt], 16) != 0) {
    return FailedPrecondition(
        "\"" + file_.path() +
        "\" was saved with another model, or with other ranks (--tensor-parallel-size)");
  }
  if (std::memcmp(&header[kBlockSizeAt], &expected[kBlockSizeAt], 4) != 0 ||
      std::memcmp(&header[kPageSizesAt], &expected[kPageSizesAt], 16) != 0) {
    return FailedPrecondition("\"" + file_.path() + "\" was saved with another KV layout " +
                              "(--block-size, --kv-cache-dtype)");
  }
  return OkStatus();
}

Status SessionReader::ReadTokens(std::vector<std::byte>* digested) {
  std::vector<std::byte> bytes(4 * static_cast<size_t>(num_tokens_));
  PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(kHeaderBytes, bytes));
  digested->insert(digested->end(), bytes.begin(), bytes.end());
  token_ids_.reserve(static_cast<size_t>(num_tokens_));
  for (size_t i = 0; i < bytes.size(); i += 4) {
    token_ids_.push_back(static_cast<int32_t>(LoadLittle32(&bytes[i])));
    if (token_ids_.back() < 0) return Damaged(file_, "a token below zero");
  }
  return OkStatus();
}

Status SessionReader::ReadRecordHeaders(int64_t end, std::vector<std::byte>* digested) {
  int64_t at = static_cast<int64_t>(kHeaderBytes) + 4 * num_tokens_;
  std::array<std::byte, kRecordHeaderBytes> header;
  for (int64_t i = 0; i < num_pages_; ++i) {
    if (at > end - static_cast<int64_t>(kRecordHeaderBytes)) return Damaged(file_, "it is cut");
    PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(at, header));
    digested->insert(digested->end(), header.begin(), header.end());
    const kv_cache::ContentKey key = RecordKey(header);
    if (key.group.value() >= layout_.page_bytes.size()) return Damaged(file_, "a strange group");
    offsets_.emplace(key, at);
    at += static_cast<int64_t>(kRecordHeaderBytes + layout_.page_bytes[key.group.value()]);
  }
  return at == end ? OkStatus() : Damaged(file_, "its length is not that of its blocks");
}

Status SessionReader::Read(const kv_cache::ContentKey& key, std::span<std::byte> bytes) const {
  const auto found = offsets_.find(key);
  if (found == offsets_.end()) return NotFound("the session has no such block");
  std::array<std::byte, kRecordHeaderBytes> header;
  PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(found->second, header));
  PAGEMILL_RETURN_IF_ERROR(
      file_.ReadAt(found->second + static_cast<int64_t>(kRecordHeaderBytes), bytes));
  return CheckRecord({layout_.fingerprint, key.hash, key.group}, header, bytes);
}

}  // namespace pagemill::kv_transfer
