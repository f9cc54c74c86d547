// File: cc/kv_cache/connector.h
// The scheduler's side of KV that lives elsewhere: in host memory, on disk, in another process. Its
// other side is a TransferWorker (transfer.h), which copies. A tier, a remote cache and the
// hand-over from a prefill engine to a decode engine are all connectors.
#ifndef PAGEMILL_CC_KV_CACHE_CONNECTOR_H_
#define PAGEMILL_CC_KV_CACHE_CONNECTOR_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/transfer.h"
#include "cc/step/request.h"

namespace pagemill::kv_cache {

struct ConnectorMatch {
  // The answer is not known yet, or the blocks are on their way: the request parks, and the
  // connector is asked again at every later step.
  bool ask_again = false;
  int32_t num_blocks = 0;  // that can be loaded, in a row from the first one asked for
};

// Obligations of an implementer:
// 1. No call blocks, does input or output, or depends on anything but the calls made before.
// 2. Lookup() says how many of `hashes`, the request's blocks behind those that the pool has, can
// be
//    loaded. It promises nothing: a load may still fail, and the request then computes from the
//    first block that did not come.
// 3. Transfer() appends the transfers (ids unset) that load `blocks`, or store them. A load covers
//    all blocks, in order, in transfers of its own; a store may leave out what it does not want.
// 4. Finish() hears of every transfer once, `transfer` as it was started.
class KvConnector {
 public:
  virtual ~KvConnector() = default;
  virtual ConnectorMatch Lookup(const step::Request& request,
                                std::span<const BlockHash> hashes) = 0;
  virtual void Transfer(KvTransfer::Direction direction, std::span<const BlockContent> blocks,
                        std::vector<KvTransfer>* transfers) = 0;
  virtual void Finish(const KvTransfer& transfer, const KvTransferResult& result) = 0;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_CONNECTOR_H_
