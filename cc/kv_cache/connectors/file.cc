#include "cc/kv_cache/connectors/file.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pagemill::kv_cache {

using Direction = KvTransfer::Direction;

ConnectorMatch FileConnector::Lookup(const step::Request&, std::span<const BlockHash> hashes,
                                     std::vector<KvTransfer>* transfers) {
  ++stats_.num_kv_lookups;
  ConnectorMatch match;
  if (!usable_) return match;
  for (; match.num_blocks < static_cast<int32_t>(hashes.size()); ++match.num_blocks) {
    for (int32_t g = 0; g < options_.num_groups; ++g) {
      const ContentKey key{hashes[match.num_blocks], GroupId(static_cast<uint16_t>(g))};
      if (in_flight_.contains(key)) {
        ++stats_.num_deferred_kv_lookups;
        return {.ask_again = true, .num_blocks = 0};
      }
      const std::optional<size_t> list = known_.Find(key);
      if (!list) return Probe(hashes.subspan(match.num_blocks), transfers);
      if (*list == kThere) continue;
      known_.Erase(key);
      return match;
    }
  }
  return match;
}

ConnectorMatch FileConnector::Probe(std::span<const BlockHash> hashes,
                                    std::vector<KvTransfer>* transfers) {
  KvTransfer probe;
  probe.direction = Direction::kProbe;
  probe.medium = kFileMedium;
  for (const BlockHash& hash : hashes) {
    for (int32_t g = 0; g < options_.num_groups; ++g) {
      const ContentKey key{hash, GroupId(static_cast<uint16_t>(g))};
      probe.blocks.push_back({key.hash, key.group, kNullBlock});
      ++in_flight_[key];
    }
    if (static_cast<int32_t>(probe.blocks.size()) >= options_.max_probe_blocks) break;
  }
  transfers->push_back(std::move(probe));
  ++stats_.num_deferred_kv_lookups;
  return {.ask_again = true, .num_blocks = 0};
}

void FileConnector::Transfer(Direction direction, std::span<const BlockContent> blocks,
                             std::vector<KvTransfer>* transfers) {
  KvTransfer transfer;
  transfer.direction = direction;
  transfer.medium = kFileMedium;
  for (const BlockContent& block : blocks) {
    const ContentKey key{block.hash, block.group};
    if (direction == Direction::kStore) {
      if (!usable_) {
        ++stats_.kv_blocks_dropped;
        continue;
      }
      if (known_.Find(key) == kThere || in_flight_.contains(key)) continue;
      if (num_storing_ >= options_.max_blocks_in_flight) {
        ++stats_.kv_blocks_dropped;
        continue;
      }
      ++num_storing_;
    }
    ++in_flight_[key];
    transfer.blocks.push_back(block);
  }
  if (!transfer.blocks.empty()) transfers->push_back(std::move(transfer));
}

void FileConnector::Learn(List list, const ContentKey& key) {
  known_.PushBack(list, key);
  if (known_.size(list) > static_cast<size_t>(options_.max_known_blocks)) known_.PopFront(list);
}

void FileConnector::Land(const ContentKey& key) {
  const auto found = in_flight_.find(key);
  if (--found->second == 0) in_flight_.erase(found);
}

void FileConnector::Finish(const KvTransfer& transfer, const KvTransferResult& result) {
  stats_.num_failed_kv_transfers += !result.status.ok();
  if (transfer.direction == Direction::kForget) {
    --num_forgetting_;
    usable_ = result.status.ok() && num_forgetting_ == 0;
  }
  const auto done = static_cast<size_t>(std::max(0, result.num_blocks_done));
  for (size_t i = 0; i < transfer.blocks.size(); ++i) {
    const ContentKey key{transfer.blocks[i].hash, transfer.blocks[i].group};
    Land(key);
    const bool stores = transfer.direction == Direction::kStore;
    num_storing_ -= stores;
    if (!usable_) continue;  // the files are removed, or about to be
    if (i < done) {
      Learn(kThere, key);
      stats_.kv_blocks_stored += stores;
      stats_.kv_blocks_loaded += transfer.direction == Direction::kLoad;
    } else if (i == done && transfer.direction == Direction::kLoad) {
      known_.Erase(key);
    } else if (i == done && transfer.direction == Direction::kProbe) {
      Learn(kAbsent, key);
    }
  }
}

bool FileConnector::Reset(std::vector<KvTransfer>* transfers) {
  known_ = KeyLists(2);
  usable_ = false;
  ++num_forgetting_;
  KvTransfer& forget = transfers->emplace_back();
  forget.direction = Direction::kForget;
  forget.medium = kFileMedium;
  return true;
}

Status FileConnector::CheckIntegrity() const {
  const auto most = static_cast<size_t>(options_.max_known_blocks);
  if (known_.size(kThere) > most || known_.size(kAbsent) > most) {
    return Internal("file connector: more blocks remembered than its bound");
  }
  if (num_storing_ < 0 || num_storing_ > options_.max_blocks_in_flight) {
    return Internal("file connector: blocks in flight are miscounted");
  }
  return known_.CheckIntegrity();
}

}  // namespace pagemill::kv_cache
