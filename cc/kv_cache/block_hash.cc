#include "cc/kv_cache/block_hash.h"

#include <algorithm>
#include <cstring>

#include "cc/base/endian.h"
#include "cc/base/sha256.h"
#include "cc/base/xxh3.h"

namespace pagemill::kv_cache {

StatusOr<HashAlgorithm> ParseHashAlgorithm(std::string_view name) {
  if (name == "xxh3-128") return HashAlgorithm::kXxh3_128;
  if (name == "sha256") return HashAlgorithm::kSha256;
  return InvalidArgument("prefix_caching_hash is \"" + std::string(name) +
                         "\", it must be one of xxh3-128, sha256");
}

namespace {

std::string_view Bytes(uint32_t value, uint8_t (&buffer)[4]) {
  StoreLittle32(value, buffer);
  return {reinterpret_cast<const char*>(buffer), sizeof(buffer)};
}

void AppendRecord(std::string_view tag, std::string_view first, std::string_view second,
                  std::string* keys) {
  uint8_t buffer[4];
  keys->append(tag);
  keys->append(Bytes(static_cast<uint32_t>(first.size() + second.size()), buffer));
  keys->append(first);
  keys->append(second);
}

}  // namespace

std::string ExtraKeys(const step::Request& request, int32_t begin, int32_t end) {
  std::string keys;
  uint8_t buffer[4];
  if (begin == 0 && !request.cache_salt.empty()) {
    AppendRecord("salt", request.cache_salt, "", &keys);
  }
  if (begin == 0 && request.adapter != step::kNoAdapter) {
    uint8_t id[8];
    StoreLittle64(request.adapter.value(), id);
    AppendRecord("adpt", {reinterpret_cast<const char*>(id), sizeof(id)}, "", &keys);
  }
  if (request.media.empty()) return keys;
  const auto ends_before = [](const step::MediaItem& item, int32_t position) {
    return item.first_token + item.num_tokens <= position;
  };
  auto item = std::lower_bound(request.media.begin(), request.media.end(), begin, ends_before);
  for (; item != request.media.end() && item->first_token < end; ++item) {
    const auto offset = static_cast<uint32_t>(item->first_token - begin);
    AppendRecord("mdia", Bytes(offset, buffer), item->content_id, &keys);
  }
  return keys;
}

BlockHash BlockHasher::Hash(const BlockHash& parent, std::string_view extra_keys,
                            const step::TokenSequence& tokens, int32_t begin, int32_t end) {
  constexpr size_t kParentSize = 32;
  const size_t header = kParentSize + 4;
  const size_t count = static_cast<size_t>(end - begin);
  buffer_.resize(header + extra_keys.size() + 4 * count);
  uint8_t* out = buffer_.data();
  for (int i = 0; i < 4; ++i) StoreLittle64(parent.words[i], out + 8 * i);
  StoreLittle32(static_cast<uint32_t>(extra_keys.size()), out + kParentSize);
  if (!extra_keys.empty()) std::memcpy(out + header, extra_keys.data(), extra_keys.size());
  uint8_t* token_bytes = out + header + extra_keys.size();
  for (std::span<const int32_t> part : tokens.Parts(begin, end)) {
    for (size_t i = 0; i < part.size(); ++i) {
      StoreLittle32(static_cast<uint32_t>(part[i]), token_bytes + 4 * i);
    }
    token_bytes += 4 * part.size();
  }

  BlockHash hash;
  if (algorithm_ == HashAlgorithm::kXxh3_128) {
    const Digest128 digest = Xxh3_128(buffer_.data(), buffer_.size());
    hash.words = {digest.low, digest.high, 0, 0};
  } else {
    const Digest256 digest = Sha256(buffer_.data(), buffer_.size());
    for (int i = 0; i < 4; ++i) hash.words[i] = LoadLittle64(digest.data() + 8 * i);
  }
  return hash;
}

}  // namespace pagemill::kv_cache
