// File: cc/kv_cache/connector.h
// The scheduler's side of KV that lives elsewhere: in host memory, on disk, in another process. Its
// other side is a TransferWorker (transfer.h), which copies. A tier, a remote cache and the
// hand-over from a prefill engine to a decode engine are all connectors.
//
// The life of a request, as a connector sees it: Lookup() when it is about to start, Transfer() of
// what is loaded for it, Transfer() of the blocks that it fills, RequestFinished(). Its
// kv_transfer_params come from the connector of the engine that had it before.
#ifndef PAGEMILL_CC_KV_CACHE_CONNECTOR_H_
#define PAGEMILL_CC_KV_CACHE_CONNECTOR_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/field_info.h"
#include "cc/base/status.h"
#include "cc/kv_cache/prefix_query.h"
#include "cc/kv_cache/transfer.h"
#include "cc/step/request.h"

namespace pagemill::kv_cache {

struct ConnectorMatch {
  // The answer is not known yet, or the blocks are on their way: the request parks, and the
  // connector is asked again after the next Finish().
  bool ask_again = false;
  int32_t num_blocks = 0;  // that can be loaded, in a row from the first one asked for
  Handover handover = {};  // who has them, if that is a peer; copied to the transfers of the load
};

// Counters only grow; blocks are pages, so a block of two groups counts twice.
struct KvConnectorStats {
  uint64_t num_kv_lookups = 0;
  uint64_t num_deferred_kv_lookups = 0;
  uint64_t kv_blocks_loaded = 0;
  uint64_t kv_blocks_stored = 0;
  uint64_t kv_blocks_dropped = 0;
  uint64_t kv_blocks_demoted = 0;
  uint64_t kv_blocks_evicted = 0;
  uint64_t num_failed_kv_transfers = 0;

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using S = KvConnectorStats;
    visit("num_kv_lookups", &S::num_kv_lookups,
          Counter("requests looked up in KV tiers and connectors", "kv_lookups"));
    visit("num_deferred_kv_lookups", &S::num_deferred_kv_lookups,
          Counter("lookups that waited for a transfer", "kv_deferred_lookups"));
    visit("kv_blocks_loaded", &S::kv_blocks_loaded,
          Counter("KV blocks copied into pages; a block counts once per group of layers",
                  "kv_blocks_loaded"));
    visit("kv_blocks_stored", &S::kv_blocks_stored,
          Counter("KV blocks copied from pages", "kv_blocks_stored"));
    visit("kv_blocks_dropped", &S::kv_blocks_dropped,
          Counter("KV blocks not stored because the medium was busy", "kv_blocks_dropped"));
    visit("kv_blocks_demoted", &S::kv_blocks_demoted,
          Counter("KV blocks copied from host memory to disk", "kv_blocks_demoted"));
    visit("kv_blocks_evicted", &S::kv_blocks_evicted,
          Counter("KV blocks gone from the last medium that had them, to make room",
                  "kv_blocks_evicted"));
    visit("num_failed_kv_transfers", &S::num_failed_kv_transfers,
          Counter("KV transfers that ended with an error", "kv_failed_transfers"));
  }
};

// Obligations of an implementer:
// 1. No call blocks, does input or output, or depends on anything but the calls made before.
// 2. Lookup() says how many of the blocks that are asked for can be loaded, so that all groups can
//    go on after them (PrefixQuery::LongestPrefix). It promises nothing: a load may still fail, and
//    the request then computes from the first block that did not come. It may append transfers (ids
//    unset) that find out; it says ask_again only where a transfer of its own is under way, whose
//    Finish() brings the answer.
// 3. Transfer() appends the transfers (ids unset) that load `blocks`, or store them. A load covers
//    all blocks, in transfers of its own, each in order; a store may leave out what it does not
//    want. It may append transfers that have no page, too.
// 4. Finish() is called once for every transfer, with `transfer` as it was started.
// 5. RequestFinished() is called once for each request that ended by itself (stop or length), with
//    what is cached of its full blocks; nothing if kSend transfers hold so many blocks that these
//    would exceed half of the pool. To keep blocks until they were sent it appends kSend transfers:
//    those hold their blocks, and nothing else does. What it returns goes to the client with the
//    last output, within the bounds of step::KvTransferParams.
// 6. After Reset() no lookup finds content that was stored before it, or that a store under way
//    brings. It is called while no load is under way, and may append transfers (kForget). The
//    default refuses: then the engine's prefix cache cannot be reset either.
class KvConnector {
 public:
  virtual ~KvConnector() = default;
  virtual ConnectorMatch Lookup(const step::Request& request, const PrefixQuery& query,
                                std::vector<KvTransfer>* transfers) = 0;
  virtual void Transfer(KvTransfer::Direction direction, std::span<const BlockContent> blocks,
                        std::vector<KvTransfer>* transfers) = 0;
  virtual void Finish(const KvTransfer& transfer, const KvTransferResult& result) = 0;
  virtual step::KvTransferParams RequestFinished(const step::Request& /*request*/,
                                                 std::span<const BlockContent> /*blocks*/,
                                                 std::vector<KvTransfer>* /*transfers*/) {
    return {};
  }

  // False if the connector cannot forget; then nothing has changed.
  virtual bool Reset(std::vector<KvTransfer>* /*transfers*/) { return false; }
  virtual KvConnectorStats stats() const { return {}; }
  virtual Status CheckIntegrity() const { return OkStatus(); }
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_CONNECTOR_H_
