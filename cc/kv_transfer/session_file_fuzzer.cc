// Reads a saved session with arbitrary damage: the result is what was saved or an error.
//
// The first byte selects whether the damaged file gets a matching checksum, as a malicious file
// would: the code after the check must be safe too.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cc/base/endian.h"
#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/kv_transfer/block_record.h"
#include "cc/kv_transfer/session_file.h"
#include "cc/step/fake_model.h"
#include "tools/fuzz/byte_reader.h"

namespace pagemill::kv_transfer {
namespace {

using fuzz::ByteReader;

constexpr size_t kHeaderBytes = 64;  // of the layout in session_file.h
constexpr size_t kTokensAt = 32;
constexpr size_t kPagesAt = 40;
constexpr size_t kDigestBytes = 16;

struct Saved {
  step::FakeModel model{step::FakeModel::Options{}};
  SessionLayout layout = {.fingerprint = {5, 6},
                          .block_size = 4,
                          .page_bytes = {model.page_bytes(kv_cache::GroupId(0)),
                                         model.page_bytes(kv_cache::GroupId(1))}};
  std::vector<int32_t> token_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<kv_cache::BlockContent> contents;
  std::string path;
  std::string bytes;

  Saved() {
    for (uint64_t i = 0; i < 4; ++i) {
      kv_cache::BlockContent content;
      content.hash.words[0] = i / 2 + 1;
      content.group = kv_cache::GroupId(static_cast<uint16_t>(i % 2));
      content.block = kv_cache::BlockId(static_cast<int32_t>(i) + 1);
      contents.push_back(content);
      const std::vector<std::byte> page(layout.page_bytes[0], static_cast<std::byte>(i + 40));
      PAGEMILL_CHECK(model.Write(content.group, content.block, page).ok());
    }
    path = (std::filesystem::temp_directory_path() /
            ("session_file_fuzzer." + std::to_string(::getpid())))
               .string();
    PAGEMILL_CHECK(WriteSession(path, layout, token_ids, 8, contents, model).ok());
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  ~Saved() { std::filesystem::remove(path); }
};

uint64_t LoadCount(const std::string& file, size_t at) {
  return LoadLittle64(reinterpret_cast<const std::byte*>(file.data()) + at);
}

// Recomputes the digest at the place that the file's own numbers imply, if the file is long enough.
void FixDigest(const SessionLayout& layout, std::string* file) {
  if (file->size() < kHeaderBytes + kDigestBytes) return;
  const size_t end = file->size() - kDigestBytes;
  const uint64_t tokens = LoadCount(*file, kTokensAt), pages = LoadCount(*file, kPagesAt);
  if (tokens > (end - kHeaderBytes) / 4) return;
  size_t at = kHeaderBytes + 4 * static_cast<size_t>(tokens);
  std::string digested = file->substr(0, at);
  for (uint64_t i = 0; i < pages && at + kRecordHeaderBytes <= end; ++i) {
    const std::string header = file->substr(at, kRecordHeaderBytes);
    digested += header;
    const kv_cache::ContentKey key = RecordKey(std::as_bytes(std::span(header)));
    if (key.group.value() >= layout.page_bytes.size()) break;
    at += kRecordHeaderBytes + layout.page_bytes[key.group.value()];
  }
  const Digest128 digest = Xxh3_128(digested.data(), digested.size());
  auto* const to = reinterpret_cast<std::byte*>(file->data()) + end;
  StoreLittle64(digest.low, to);
  StoreLittle64(digest.high, to + 8);
}

void Damage(ByteReader* in, std::string* file) {
  const auto position = static_cast<size_t>(in->Bits(2));
  switch (in->Below(5)) {
    case 0:  // one byte
      if (position < file->size()) (*file)[position] = static_cast<char>(in->Byte());
      return;
    case 1:  // a number of the header
      for (size_t i = 0; i < 8 && kTokensAt + i < file->size(); ++i) {
        (*file)[(position % 2 == 0 ? kTokensAt : kPagesAt) + i] = static_cast<char>(in->Byte());
      }
      return;
    case 2:
      file->resize(std::min(file->size(), position));
      return;
    case 3:
      file->insert(std::min(file->size(), position), in->Bytes(in->Below(128)));
      return;
    default:  // a part of it again
      file->append(file->substr(std::min(file->size(), position), in->Bits(2)));
  }
}

// With the writer's checksums, everything found must have been saved.
void Read(const Saved& saved, const std::string& path, bool is_trusted) {
  const StatusOr<SessionReader> reader = SessionReader::Open(path, saved.layout);
  if (!reader.ok()) {
    PAGEMILL_CHECK(reader.status().code() == StatusCode::kDataLoss ||
                   reader.status().code() == StatusCode::kFailedPrecondition);
    return;
  }
  if (is_trusted) PAGEMILL_CHECK(reader->token_ids() == saved.token_ids);
  std::vector<std::byte> bytes(saved.layout.page_bytes[0]);
  for (const kv_cache::BlockContent& content : saved.contents) {
    const Status status = reader->Read({content.hash, content.group}, bytes);
    if (!is_trusted || !status.ok()) continue;
    for (std::byte byte : bytes)
      PAGEMILL_CHECK(std::to_integer<int>(byte) == content.block.value() + 39);
  }
}

void RunInput(const uint8_t* data, size_t size) {
  static const Saved saved;
  ByteReader in(data, size);
  const bool fixes_digest = in.Below(2) == 1;
  std::string file = saved.bytes;
  while (!in.empty()) Damage(&in, &file);
  if (fixes_digest) FixDigest(saved.layout, &file);
  std::ofstream(saved.path, std::ios::binary | std::ios::trunc) << file;
  Read(saved, saved.path, !fixes_digest);
}

}  // namespace
}  // namespace pagemill::kv_transfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagemill::kv_transfer::RunInput(data, size);
  return 0;
}
