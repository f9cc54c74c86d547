// File: cc/kv_transfer/peer_loads.h
// Loads of blocks that engines hand over in their shared memory (peer_segment.h), any number at a
// time. None waits for another.
//
//   PeerLoads loads(format, pages, sink);
//   loads.Add(transfer);
//   while (!loads.empty()) {
//     if (!loads.Advance(&results)) ... all of them wait for peers: try again soon ...
//   }
//
// A load ends early if its blocks will not come any more, if its peer's process is gone, or if it
// was abandoned and has to wait. Where the blocks go is the sink's: into pages, or to an engine on
// another machine. Thread safety: none.
#ifndef PAGEMILL_CC_KV_TRANSFER_PEER_LOADS_H_
#define PAGEMILL_CC_KV_TRANSFER_PEER_LOADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/peer_segment.h"
#include "cc/kv_transfer/segment_layout.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

// Takes block `index` of a load, whose bytes were checked.
using BlockSink = std::function<Status(const kv_cache::KvTransfer& load, size_t index,
                                       std::span<const std::byte> bytes)>;

class PeerLoads {
 public:
  // `pages`, which says how large pages are, must outlive this object.
  PeerLoads(const SegmentFormat& format, const step::PageStore* pages, BlockSink sink)
      : format_(format), pages_(pages), sink_(std::move(sink)) {}

  void Add(kv_cache::KvTransfer load) { jobs_.emplace_back(std::move(load)); }
  void Abandon(kv_cache::TransferId id);
  bool empty() const { return jobs_.empty(); }
  size_t size() const { return jobs_.size(); }
  // Loads a block of each that can get on, and appends the results of those that are over. False
  // if all wait. Stops once the blocks have `max_bytes`, and begins with the next load then.
  bool Advance(std::vector<kv_cache::KvTransferResult>* ended, size_t max_bytes = SIZE_MAX);

 private:
  struct Job {
    explicit Job(kv_cache::KvTransfer taken);
    kv_cache::KvTransfer transfer;
    std::unordered_set<kv_cache::ContentKey, kv_cache::ContentKeyHash> keys;  // of its blocks
    size_t num_done = 0;                                                      // leading blocks
    bool begun = false;  // the peer's directory was read since it was added
    bool abandoned = false;
  };
  enum class Step { kMoved, kWaits, kOver };
  struct Outcome {
    Step step;
    Status status;  // of kOver
  };

  Outcome Load(Job* job);
  Outcome LoadBlock(Job* job, PeerSegment* peer);
  Outcome Wait(const Job& job, PeerSegment* peer);
  void End(const Job& job);
  StatusOr<PeerSegment*> Peer(const std::string& engine_id);

  const SegmentFormat format_;
  const step::PageStore* const pages_;
  const BlockSink sink_;
  std::list<Job> jobs_;
  std::map<std::string, std::unique_ptr<PeerSegment>> peers_;
  std::vector<std::byte> buffer_;  // one page
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_PEER_LOADS_H_
