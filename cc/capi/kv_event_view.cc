#include "cc/capi/kv_event_view.h"

#include <cstdint>
#include <utility>

namespace pagemill::capi {
namespace {

std::array<uint8_t, 32> BytesOf(const kv_cache::BlockHash& hash) {
  std::array<uint8_t, 32> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(hash.words[i / 8] >> (8 * (i % 8)));
  }
  return bytes;
}

}  // namespace

KvEventView::KvEventView(engine::KvEventBatch batch) : batch_(std::move(batch)) {
  const size_t count = batch_.events.size();
  arrays_.reserve(count);  // so that what is pointed to keeps its place
  events_.reserve(count);
  pointers_.reserve(count);
  for (const kv_cache::KvEvent& event : batch_.events) Add(event);
}

void KvEventView::Add(const kv_cache::KvEvent& event) {
  Arrays& arrays = arrays_.emplace_back();
  for (const kv_cache::BlockHash& hash : event.hashes) arrays.hash_bytes.push_back(BytesOf(hash));
  arrays.hash_bytes.push_back(BytesOf(event.parent));
  for (size_t i = 0; i < event.hashes.size(); ++i) {
    arrays.hashes.push_back({arrays.hash_bytes[i].data(), arrays.hash_bytes[i].size()});
  }
  for (const std::string& key : event.extra_keys) {
    arrays.extra_keys.push_back({reinterpret_cast<const uint8_t*>(key.data()), key.size()});
  }
  pagemill_kv_event to = {};
  to.struct_size = sizeof(to);
  to.sequence = event.sequence;
  to.type = static_cast<int32_t>(event.type);
  to.group = event.group.value();
  to.medium = event.medium.c_str();
  to.hashes = arrays.hashes.data();
  to.num_hashes = arrays.hashes.size();
  const std::array<uint8_t, 32>& parent = arrays.hash_bytes.back();
  to.parent = {parent.data(), event.parent.empty() ? 0 : parent.size()};
  to.token_ids = event.token_ids.data();
  to.num_token_ids = event.token_ids.size();
  to.extra_keys = arrays.extra_keys.data();
  to.num_extra_keys = arrays.extra_keys.size();
  to.block_size = event.block_size;
  pointers_.push_back(&events_.emplace_back(to));
}

pagemill_kv_events KvEventView::ToC() const {
  return {.struct_size = sizeof(pagemill_kv_events),
          .events = pointers_.data(),
          .num_events = pointers_.size(),
          .next = batch_.next,
          .dropped = batch_.dropped};
}

}  // namespace pagemill::capi
