// File: cc/kv_cache/tiers/tiered_connector.h
// A host tier and a disk tier behind the pool, either of them optional.
//
//   TieredConnector::Options options;
//   options.host_blocks = 4096;
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<TieredConnector> connector,
//                       TieredConnector::Create(options));
//   scheduler->SetConnector(connector.get());
//
// What is computed is stored in the highest tier. What is evicted from the host tier is demoted to
// the disk tier; what is loaded from disk is promoted, since the scheduler offers loaded blocks for
// storing as it does computed ones. A block that is on its way in any direction is not loaded a
// second time: the lookup says "ask again". A store that finds its tier busy (too many blocks in
// flight, no free slot, everything in use) is dropped and counted, never waited for.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_TIERS_TIERED_CONNECTOR_H_
#define PAGEMILL_CC_KV_CACHE_TIERS_TIERED_CONNECTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/tiers/block_tier.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_cache/transfer.h"

namespace pagemill::kv_cache {

inline constexpr char kHostMedium[] = "host";
inline constexpr char kDiskMedium[] = "disk";

class TieredConnector final : public KvConnector {
 public:
  struct Options {
    int64_t host_blocks = 0;  // slots of the host tier; 0 = none, else at least 2
    int64_t disk_blocks = 0;  // slots of the disk tier; 0 = none, else at least 2
    std::string policy = "lru";
    // Pages that wait to be stored, at most; they cannot be evicted meanwhile.
    int32_t max_blocks_in_flight = 256;
  };

  // kInvalidArgument if both tiers are missing, or one is too small.
  static StatusOr<std::unique_ptr<TieredConnector>> Create(const Options& options);

  ConnectorMatch Lookup(const step::Request& request, const PrefixQuery& query,
                        std::vector<KvTransfer>* transfers) override;
  void Transfer(KvTransfer::Direction direction, std::span<const BlockContent> blocks,
                std::vector<KvTransfer>* transfers) override;
  void Finish(const KvTransfer& transfer, const KvTransferResult& result) override;
  bool Reset(std::vector<KvTransfer>* transfers) override;

  KvConnectorStats stats() const override { return stats_; }
  Status CheckIntegrity() const override;

 private:
  explicit TieredConnector(const Options& options) : options_(options) {}

  enum class Whereabouts { kNowhere, kOnItsWay, kThere };
  Whereabouts Find(const ContentKey& key) const;
  bool Ready(const std::optional<BlockTier>& tier, const ContentKey& key) const {
    return tier && tier->state(key) == BlockTier::State::kReady;
  }
  BlockTier* TierOf(const std::string& medium);
  void Load(std::span<const BlockContent> blocks, std::vector<KvTransfer>* transfers);
  void Store(std::span<const BlockContent> blocks, std::vector<KvTransfer>* transfers);
  // Where content evicted from the host tier goes: to disk, or nowhere.
  void Demote(const BlockTier::Content& victim, KvTransfer* demotion);
  void FreeVictim(BlockTier* tier, const BlockTier::Reservation& reservation);

  const Options options_;
  std::optional<BlockTier> host_;
  std::optional<BlockTier> disk_;
  std::unordered_set<ContentKey, ContentKeyHash> loading_;
  int32_t num_storing_ = 0;   // pages that are being stored
  int32_t num_demoting_ = 0;  // slots of the host tier that are being copied to disk
  KvConnectorStats stats_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TIERS_TIERED_CONNECTOR_H_
