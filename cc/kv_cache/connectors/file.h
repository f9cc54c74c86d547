// File: cc/kv_cache/connectors/file.h
// A KvConnector over a folder of files, one per block, that several processes may share and that
// outlives them all: the working example of a connector. Its other side is FileMedium
// (file_medium.h).
//
//   FileConnector connector({});
//   scheduler->SetConnector(&connector);
//   worker.Add(kFileMedium, std::move(file_medium));
//
// The scheduler's side cannot look at files, so it asks: a lookup of blocks it knows nothing about
// starts a probe and says "ask again". A probe ends at the first block that is not there, and what
// is needed of a shorter prefix is probed next. What is known to be there is remembered, up to a
// bound; that a block is absent is remembered only until a lookup has returned it, since another
// process may write the block.
//
// A reset removes the folder's files. Until that is done nothing is looked up or stored.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_CONNECTORS_FILE_H_
#define PAGEMILL_CC_KV_CACHE_CONNECTORS_FILE_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_cache/tiers/key_lists.h"
#include "cc/kv_cache/transfer.h"

namespace pagemill::kv_cache {

inline constexpr char kFileMedium[] = "file";

class FileConnector final : public KvConnector {
 public:
  struct Options {
    // Pages that wait to be stored, at most; more are dropped and counted.
    int32_t max_blocks_in_flight = 256;
    // Blocks of which it is remembered that they are there (some 150 bytes each).
    int32_t max_known_blocks = 1 << 18;
    // Blocks of one probe.
    int32_t max_probe_blocks = 1024;
  };

  explicit FileConnector(const Options& options) : options_(options) {}

  ConnectorMatch Lookup(const step::Request& request, const PrefixQuery& query,
                        std::vector<KvTransfer>* transfers) override;
  void Transfer(KvTransfer::Direction direction, std::span<const BlockContent> blocks,
                std::vector<KvTransfer>* transfers) override;
  void Finish(const KvTransfer& transfer, const KvTransferResult& result) override;
  bool Reset(std::vector<KvTransfer>* transfers) override;

  KvConnectorStats stats() const override { return stats_; }
  Status CheckIntegrity() const override;

 private:
  enum List : size_t { kThere, kAbsent };

  ConnectorMatch Probe(std::span<const ContentKey> keys, std::vector<KvTransfer>* transfers);
  void Learn(List list, const ContentKey& key);
  void Land(const ContentKey& key);

  const Options options_;
  KeyLists known_{2};
  std::unordered_map<ContentKey, int32_t, ContentKeyHash> in_flight_;  // number of transfers
  int32_t num_storing_ = 0;
  int32_t num_forgetting_ = 0;  // kForget transfers under way
  // False from a Reset() until the files are removed; forever if that fails.
  bool usable_ = true;
  KvConnectorStats stats_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_CONNECTORS_FILE_H_
