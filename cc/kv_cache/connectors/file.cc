#include "cc/kv_cache/connectors/file.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pagemill::kv_cache {

using Direction = KvTransfer::Direction;

ConnectorMatch FileConnector::Lookup(const step::Request&, const PrefixQuery& query,
                                     std::vector<KvTransfer>* transfers) {
  // What nothing is known of may be there.
  class Content final : public ContentFinder {
   public:
    explicit Content(const KeyLists& known) : known_(known) {}
    bool Has(const BlockHash& hash, GroupId group) const override {
      if (known_.Find({hash, group}) != kAbsent) return true;
      absent_.push_back({hash, group});
      return false;
    }
    const std::vector<ContentKey>& absent() const { return absent_; }

   private:
    const KeyLists& known_;
    mutable std::vector<ContentKey> absent_;  // that the answer rests on
  };
  ++stats_.num_kv_lookups;
  if (!usable_) return {};
  const Content content(known_);
  const int32_t num_blocks = query.LongestPrefix(content);
  std::vector<ContentKey> unknown;
  for (const ContentKey& key : query.Needed(num_blocks)) {
    if (in_flight_.contains(key)) {
      ++stats_.num_deferred_kv_lookups;
      return {.ask_again = true, .num_blocks = 0};
    }
    if (!known_.Find(key)) unknown.push_back(key);
  }
  if (!unknown.empty()) return Probe(unknown, transfers);
  for (const ContentKey& key : content.absent()) known_.Erase(key);
  return {.num_blocks = num_blocks};
}

ConnectorMatch FileConnector::Probe(std::span<const ContentKey> keys,
                                    std::vector<KvTransfer>* transfers) {
  KvTransfer probe;
  probe.direction = Direction::kProbe;
  probe.medium = kFileMedium;
  const auto most = static_cast<size_t>(options_.max_probe_blocks);
  for (const ContentKey& key : keys.first(std::min(keys.size(), most))) {
    probe.blocks.push_back({key.hash, key.group, kNullBlock});
    ++in_flight_[key];
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
