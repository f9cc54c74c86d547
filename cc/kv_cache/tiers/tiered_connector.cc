#include "cc/kv_cache/tiers/tiered_connector.h"

#include <algorithm>
#include <utility>

namespace pagemill::kv_cache {
namespace {

using Direction = KvTransfer::Direction;

ContentKey KeyOf(const BlockContent& block) { return {block.hash, block.group}; }

KvTransfer MakeTransfer(Direction direction, const char* medium) {
  KvTransfer transfer;
  transfer.direction = direction;
  transfer.medium = medium;
  return transfer;
}

void AppendUnlessEmpty(KvTransfer transfer, std::vector<KvTransfer>* transfers) {
  if (!transfer.blocks.empty()) transfers->push_back(std::move(transfer));
}

// Slots for evicted content while new content arrives: enough that a step's blocks find room.
int64_t NumSpare(int64_t slots, bool demotes) {
  return demotes ? std::clamp<int64_t>(slots / 8, 1, 64) : 1;
}

}  // namespace

StatusOr<std::unique_ptr<TieredConnector>> TieredConnector::Create(const Options& options) {
  if (options.host_blocks <= 0 && options.disk_blocks <= 0) {
    return InvalidArgument("a tiered KV cache needs a host tier or a disk tier");
  }
  if (options.max_blocks_in_flight < 1) {
    return InvalidArgument("max_blocks_in_flight of a KV tier must be at least 1");
  }
  std::unique_ptr<TieredConnector> made(new TieredConnector(options));
  const int64_t host = options.host_blocks, disk = options.disk_blocks;
  if (host > 0) {
    PAGEMILL_ASSIGN_OR_RETURN(made->host_,
                              BlockTier::Create(options.policy, host, NumSpare(host, disk > 0)));
  }
  if (disk > 0) {
    PAGEMILL_ASSIGN_OR_RETURN(made->disk_, BlockTier::Create(options.policy, disk, 1));
  }
  return made;
}

TieredConnector::Whereabouts TieredConnector::Find(const ContentKey& key) const {
  if (loading_.contains(key)) return Whereabouts::kOnItsWay;
  if (Ready(host_, key) || Ready(disk_, key)) return Whereabouts::kThere;
  const auto storing = [&](const std::optional<BlockTier>& tier) {
    return tier && tier->state(key) == BlockTier::State::kStoring;
  };
  return storing(host_) || storing(disk_) ? Whereabouts::kOnItsWay : Whereabouts::kNowhere;
}

ConnectorMatch TieredConnector::Lookup(const step::Request&, const PrefixQuery& query,
                                       std::vector<KvTransfer>*) {
  // What is on its way counts: if the prefix needs it, it is worth waiting for.
  class Content final : public ContentFinder {
   public:
    explicit Content(const TieredConnector& tiers) : tiers_(tiers) {}
    bool Has(const BlockHash& hash, GroupId group) const override {
      return tiers_.Find({hash, group}) != Whereabouts::kNowhere;
    }

   private:
    const TieredConnector& tiers_;
  };
  ++stats_.num_kv_lookups;
  const int32_t num_blocks = query.LongestPrefix(Content(*this));
  for (const ContentKey& key : query.Needed(num_blocks)) {
    if (Find(key) != Whereabouts::kOnItsWay) continue;
    ++stats_.num_deferred_kv_lookups;
    return {.ask_again = true, .num_blocks = 0};
  }
  return {.num_blocks = num_blocks};
}

void TieredConnector::Transfer(Direction direction, std::span<const BlockContent> blocks,
                               std::vector<KvTransfer>* transfers) {
  if (direction == Direction::kLoad) {
    Load(blocks, transfers);
  } else {
    Store(blocks, transfers);
  }
}

void TieredConnector::Load(std::span<const BlockContent> blocks,
                           std::vector<KvTransfer>* transfers) {
  KvTransfer from_host = MakeTransfer(Direction::kLoad, kHostMedium);
  KvTransfer from_disk = MakeTransfer(Direction::kLoad, kDiskMedium);
  for (const BlockContent& block : blocks) {
    const ContentKey key = KeyOf(block);
    const bool in_host = Ready(host_, key);
    KvTransfer* transfer = in_host ? &from_host : &from_disk;
    transfer->blocks.push_back(block);
    transfer->medium_slots.push_back((in_host ? host_ : disk_)->Pin(key));
    loading_.insert(key);
  }
  AppendUnlessEmpty(std::move(from_host), transfers);
  AppendUnlessEmpty(std::move(from_disk), transfers);
}

void TieredConnector::Store(std::span<const BlockContent> blocks,
                            std::vector<KvTransfer>* transfers) {
  BlockTier* tier = host_ ? &*host_ : &*disk_;
  KvTransfer store = MakeTransfer(Direction::kStore, host_ ? kHostMedium : kDiskMedium);
  KvTransfer demotion = MakeTransfer(Direction::kDemote, kDiskMedium);
  for (const BlockContent& block : blocks) {
    const ContentKey key = KeyOf(block);
    if (tier->state(key) != BlockTier::State::kAbsent) continue;
    if (num_storing_ >= options_.max_blocks_in_flight) {
      ++stats_.kv_blocks_dropped;
      continue;
    }
    const std::optional<BlockTier::Reservation> reservation = tier->Reserve(key);
    if (!reservation) {
      ++stats_.kv_blocks_dropped;
      continue;
    }
    ++num_storing_;
    store.blocks.push_back(block);
    store.medium_slots.push_back(reservation->slot);
    if (host_ && reservation->victim) {
      Demote(*reservation->victim, &demotion);
    } else {
      FreeVictim(tier, *reservation);
    }
  }
  AppendUnlessEmpty(std::move(demotion), transfers);
  AppendUnlessEmpty(std::move(store), transfers);
}

void TieredConnector::Demote(const BlockTier::Content& victim, KvTransfer* demotion) {
  std::optional<BlockTier::Reservation> reservation;
  const bool there = disk_ && disk_->state(victim.key) != BlockTier::State::kAbsent;
  if (disk_ && !there) reservation = disk_->Reserve(victim.key);
  if (!reservation) {
    if (!there) ++stats_.kv_blocks_evicted;
    host_->FreeSlot(victim.slot);
    return;
  }
  FreeVictim(&*disk_, *reservation);
  ++num_demoting_;
  demotion->blocks.push_back({victim.key.hash, victim.key.group, kNullBlock});
  demotion->source_slots.push_back(victim.slot);
  demotion->medium_slots.push_back(reservation->slot);
}

void TieredConnector::FreeVictim(BlockTier* tier, const BlockTier::Reservation& reservation) {
  if (!reservation.victim) return;
  ++stats_.kv_blocks_evicted;
  tier->FreeSlot(reservation.victim->slot);
}

BlockTier* TieredConnector::TierOf(const std::string& medium) {
  return medium == kHostMedium ? &*host_ : &*disk_;
}

void TieredConnector::Finish(const KvTransfer& transfer, const KvTransferResult& result) {
  BlockTier* tier = TierOf(transfer.medium);
  stats_.num_failed_kv_transfers += !result.status.ok();
  const auto done = static_cast<size_t>(std::max(0, result.num_blocks_done));
  for (size_t i = 0; i < transfer.blocks.size(); ++i) {
    const ContentKey key = KeyOf(transfer.blocks[i]);
    if (transfer.direction == Direction::kLoad) {
      loading_.erase(key);
      // Only the first one that did not come is known to be bad.
      if (i == done) tier->Erase(key);
      tier->Unpin(key);
      stats_.kv_blocks_loaded += i < done;
      continue;
    }
    if (i < done) {
      tier->Commit(key);
    } else {
      tier->Erase(key);
    }
    if (transfer.direction == Direction::kDemote) {
      host_->FreeSlot(transfer.source_slots[i]);
      --num_demoting_;
      stats_.kv_blocks_demoted += i < done;
    } else {
      --num_storing_;
      stats_.kv_blocks_stored += i < done;
    }
  }
}

// Without an index nothing finds the bytes in the slots, so the media need no call.
bool TieredConnector::Reset(std::vector<KvTransfer>*) {
  if (host_) host_->EraseAll();
  if (disk_) disk_->EraseAll();
  return true;
}

Status TieredConnector::CheckIntegrity() const {
  int64_t taken = 0;
  for (const std::optional<BlockTier>* tier : {&host_, &disk_}) {
    if (!*tier) continue;
    PAGEMILL_RETURN_IF_ERROR((*tier)->CheckIntegrity());
    if (tier == &host_) taken = (*tier)->num_slots() - (*tier)->num_free_slots();
  }
  if (host_ && taken != host_->num_resident() + num_demoting_) {
    return Internal("tiered connector: a slot of the host tier has no use");
  }
  if (disk_ && disk_->num_slots() - disk_->num_free_slots() != disk_->num_resident()) {
    return Internal("tiered connector: a slot of the disk tier has no use");
  }
  if (num_storing_ < 0 || num_storing_ > options_.max_blocks_in_flight || num_demoting_ < 0) {
    return Internal("tiered connector: blocks in flight are miscounted");
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
