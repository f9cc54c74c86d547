// File: cc/capi/kv_event_view.h
// A batch of KV events as the C struct, with the memory that the struct points into.
//
//   KvEventView view(std::move(batch));
//   CopyOut(view.ToC(), host_struct);   // valid as long as `view`, also where it is moved to
//
// Thread safety: none.
#ifndef PAGEMILL_CC_CAPI_KV_EVENT_VIEW_H_
#define PAGEMILL_CC_CAPI_KV_EVENT_VIEW_H_

#include <array>
#include <vector>

#include "cc/capi/pagemill.h"
#include "cc/engine/engine.h"
#include "cc/kv_cache/event_log.h"

namespace pagemill::capi {

class KvEventView {
 public:
  KvEventView() = default;
  explicit KvEventView(engine::KvEventBatch batch);
  KvEventView(KvEventView&&) = default;
  KvEventView& operator=(KvEventView&&) = default;

  pagemill_kv_events ToC() const;

 private:
  using HashBytes = std::array<uint8_t, 32>;  // words in order, little endian
  struct Arrays {
    std::vector<HashBytes> hash_bytes;  // of the hashes, then of the parent
    std::vector<pagemill_bytes> hashes;
    std::vector<pagemill_bytes> extra_keys;
  };
  void Add(const kv_cache::KvEvent& event);

  engine::KvEventBatch batch_;
  std::vector<Arrays> arrays_;
  std::vector<pagemill_kv_event> events_;
  std::vector<const pagemill_kv_event*> pointers_;
};

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_KV_EVENT_VIEW_H_
