// File: cc/kv_cache/transfer.h
// Copies between KV pages and some other medium, as data. The control column says what is to be
// copied; a TransferWorker, which sees the pages, copies; the result comes back as a value.
//
// Transfers do not belong to a step. Pages of a load are held by a request that is parked until the
// load ends, pages of a store are pinned until the store ends, and a store is planned only when its
// pages are computed: so a transfer may take any time and no step waits for it.
#ifndef PAGEMILL_CC_KV_CACHE_TRANSFER_H_
#define PAGEMILL_CC_KV_CACHE_TRANSFER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/strong_id.h"
#include "cc/kv_cache/block.h"
#include "cc/kv_cache/block_hash.h"

namespace pagemill::kv_cache {

// Grows from 1; unique in one scheduler.
using TransferId = StrongId<struct TransferIdTag, uint64_t>;

// The content of one block: what it is called everywhere, and where it lies here.
struct BlockContent {
  BlockHash hash;
  GroupId group;
  BlockId block;
};

// The blocks of a finished request on their way from one engine to another.
struct Handover {
  std::string peer = {};  // the other engine; empty: none, or not known yet
  uint64_t number = 0;    // grows from 1 with the requests that an engine sends
  // Where a client says that the peer listens; empty: on this machine.
  std::string host = {};
  std::string port = {};
};

struct KvTransfer {
  enum class Direction {
    kLoad,    // medium -> pages
    kStore,   // pages -> medium
    kDemote,  // host tier -> medium; the blocks have no page
    kProbe,  // nothing is copied: how many of the blocks, from the first one, does the medium have?
    kForget,  // names no blocks: the medium removes everything that it finds by hash
    kSend,    // pages -> a peer; their request has finished, and the transfer alone holds them
  };

  TransferId id = {};
  Direction direction = Direction::kLoad;
  std::string medium = {};                // which worker copies: "host", "disk", "file", ...
  std::vector<BlockContent> blocks = {};  // in the order of the sequence
  std::vector<int64_t> medium_slots =
      {};  // where the medium keeps each block; empty: it knows by hash
  std::vector<int64_t> source_slots = {};  // kDemote: where the host tier keeps each block
  Handover handover = {};                  // kSend, and kLoad from a peer
};

struct KvTransferResult {
  TransferId id = {};
  // Leading blocks that were copied whole (kProbe: that are there). All of them if `status` of a
  // copy is OK; at least one is missing if it is not.
  int32_t num_blocks_done = 0;
  Status status;
};

// Obligations of an implementer:
// 1. Start() takes a transfer and returns at once; the pages stay as they are until its result.
// 2. Poll() appends the results of transfers that ended since, each exactly once, in any order.
// 3. Wait() returns when a result is there to poll, or after `timeout_us` microseconds.
// 4. A kForget also removes what transfers started before it store or send. It is carried out even
//    if the worker is destroyed first.
// 5. No transfer outlives its peer, or waits for it after Abandon(): its result comes soon then,
//    since its pages stay taken until then. Abandon() of a transfer that has ended does nothing.
// All are called by the engine thread only.
class TransferWorker {
 public:
  virtual ~TransferWorker() = default;
  virtual void Start(KvTransfer transfer) = 0;
  virtual void Poll(std::vector<KvTransferResult>* results) = 0;
  virtual void Wait(int64_t timeout_us) = 0;
  virtual void Abandon(TransferId /*id*/) {}
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TRANSFER_H_
