#include "cc/scheduler/internal/load_coordinator.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace pagemill::scheduler::internal {

using kv_cache::BlockContent;
using kv_cache::BlockId;
using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using Direction = kv_cache::KvTransfer::Direction;

namespace {

// The pages of a store or send, which must not change until it ends.
std::vector<BlockId> PagesOf(const KvTransfer& transfer) {
  std::vector<BlockId> pages;
  if (transfer.direction != Direction::kStore && transfer.direction != Direction::kSend) {
    return pages;
  }
  for (const BlockContent& block : transfer.blocks) pages.push_back(block.block);
  return pages;
}

constexpr std::string_view kNoPeer;

// Workers are written by others: at most what was requested was done, and less if it failed.
KvTransferResult Sanitized(const KvTransfer& transfer, const KvTransferResult& result) {
  KvTransferResult sane = result;
  const auto size = static_cast<int32_t>(transfer.blocks.size());
  sane.num_blocks_done = std::clamp(result.num_blocks_done, 0, size);
  if (size == 0 || transfer.direction == Direction::kProbe) return sane;
  if (!sane.status.ok()) sane.num_blocks_done = std::min(sane.num_blocks_done, size - 1);
  if (sane.status.ok() && sane.num_blocks_done < size) {
    sane.status = Internal("the worker copied " + std::to_string(sane.num_blocks_done) + " of " +
                           std::to_string(size) + " blocks and called that a success");
  }
  return sane;
}

}  // namespace

Status LoadCoordinator::SetConnector(kv_cache::KvConnector* connector) {
  if (!transfers_.empty()) return FailedPrecondition("transfers of a connector are under way");
  for (const step::KvGroupOptions& group : options_.groups) {
    const bool same_grain = group.block_size == 0 || group.block_size == options_.block_size;
    if (connector == nullptr || (same_grain && group.pages_per_block == 1)) continue;
    return Unimplemented("a KV connector needs groups with one page per block of " +
                         std::to_string(options_.block_size) + " tokens; \"" + group.kind +
                         "\" has others");
  }
  connector_ = connector;
  return OkStatus();
}

void LoadCoordinator::Plan(std::vector<KvTransfer>* planned, KvLoad* load, uint64_t fence) {
  for (KvTransfer& transfer : *planned) {
    if (!cache_.Hold(PagesOf(transfer)).ok()) continue;  // a connector that names other blocks
    const bool loads = transfer.direction == Direction::kLoad;
    transfers_.Plan(std::move(transfer), loads ? load : nullptr, loads ? fence : 0);
  }
  planned->clear();
}

std::optional<ParkReason> LoadCoordinator::Fetch(RequestState* request,
                                                 const kv_cache::PrefixMatch& match,
                                                 int32_t promised, uint64_t num_plans) {
  if (connector_ == nullptr || request->kv_looked_up || !request->reads_prefix_cache() ||
      !options_.enable_prefix_caching || transfers_.hangs(kNoPeer)) {
    return std::nullopt;
  }
  const int32_t size = options_.block_size;
  const int32_t whole = (request->num_tokens() - 1) / size * size;  // one token is computed here
  if (whole <= match.num_tokens) return std::nullopt;
  const kv_cache::PrefixQuery query =
      cache_.AskFor(*request->request, request->tokens(), whole, match, &request->blocks);
  std::vector<KvTransfer> planned;
  kv_cache::ConnectorMatch found = connector_->Lookup(*request->request, query, &planned);
  // An abandoned transfer may never end: a request does not wait for an answer that it may bring.
  const bool answer_comes = !planned.empty() || transfers_.num_abandoned() == 0;
  Plan(&planned, nullptr, 0);
  if (transfers_.hangs(found.handover.peer)) found = {};
  if (found.ask_again && answer_comes && !transfers_.empty()) return ParkReason::kKvLookup;
  const int32_t end = std::min(whole, match.num_tokens + found.num_blocks * size);
  const auto num_wanted = static_cast<uint64_t>(whole - match.num_tokens);
  if (found.ask_again || end <= match.num_tokens) {
    request->kv_looked_up = true;
    counters_.kv_query_tokens += num_wanted;
    return std::nullopt;
  }
  if (!cache_.CanAllocate(request->blocks, &match, request->num_tokens(), promised)) {
    return std::nullopt;
  }
  counters_.kv_query_tokens += num_wanted;
  StartLoad(request, match, {end, std::move(found.handover), num_plans});
  return ParkReason::kKvLoad;
}

void LoadCoordinator::StartLoad(RequestState* request, const kv_cache::PrefixMatch& match,
                                Source source) {
  const int32_t end = source.end_token;
  PAGEMILL_CHECK(cache_.AllocateForLoad(end, &match, &request->blocks).ok());
  std::vector<BlockContent> contents;
  cache_.Contents(request->blocks, match.num_tokens, end, &contents);
  std::erase_if(contents, [](const BlockContent& c) { return c.block == kv_cache::kNullBlock; });
  std::vector<KvTransfer> planned;
  connector_->Transfer(Direction::kLoad, contents, &planned);
  for (KvTransfer& transfer : planned) transfer.handover = source.handover;
  KvLoad load;
  load.request = request;
  load.blocks = std::exchange(request->blocks, kv_cache::RequestBlocks(*request->request));
  load.first_token = match.num_tokens;
  load.end_token = end;
  KvLoad* added = transfers_.AddLoad(std::move(load));
  Plan(&planned, added, source.fence);
  if (!added->transfers.empty()) return;
  // A connector that finds blocks and loads none of them.
  added->missing = {contents.front()};
  EndLoad(added);
}

// How much of the load came: up to the first block of which a part is missing.
int32_t LoadCoordinator::NumLoadedTokens(const KvLoad& load) const {
  const auto hashes = load.blocks.hashes();
  int32_t end = load.end_token;
  for (const BlockContent& content : load.missing) {
    const auto found = std::find(hashes.begin(), hashes.end(), content.hash);
    const auto block = static_cast<int32_t>(found - hashes.begin());
    end = std::min(end, block * options_.block_size);
  }
  return std::max(end, load.first_token);
}

// All transfers of the load have ended. What came enters the prefix cache; the request computes the
// rest.
void LoadCoordinator::EndLoad(KvLoad* load) {
  RequestState* request = load->request;
  if (request == nullptr) {
    cache_.Free(&load->blocks);
    transfers_.DropLoad(load);
    return;
  }
  const int32_t end = NumLoadedTokens(*load);
  counters_.kv_loaded_tokens += static_cast<uint64_t>(end - load->first_token);
  counters_.num_failed_kv_loads += end < load->end_token;
  request->blocks = std::move(load->blocks);
  cache_.Commit(*request->request, request->tokens(), end, &request->blocks);
  if (end > load->first_token) {
    cache_.CachedContents(request->blocks, load->first_token, end, &to_store_);
    PlanStores();  // a faster medium may want them
  }
  transfers_.DropLoad(load);
  cache_.Free(&request->blocks);
  request->kv_looked_up = true;
  awake_.push_back(request);
}

step::KvTransferParams LoadCoordinator::RequestFinished(const RequestState& request) {
  if (connector_ == nullptr || transfers_.hangs(kNoPeer)) return {};
  const int32_t size = options_.block_size;
  const auto hashed = static_cast<int32_t>(request.blocks.hashes().size());
  const int32_t end = std::min(request.blocks.num_committed_tokens() / size, hashed) * size;
  std::vector<BlockContent> contents;
  cache_.CachedContents(request.blocks, 0, end, &contents);
  const auto count = static_cast<int32_t>(contents.size());
  if (transfers_.num_held_blocks() + count > cache_.num_usable_blocks() / 2) contents.clear();
  std::vector<KvTransfer> planned;
  step::KvTransferParams params = connector_->RequestFinished(*request.request, contents, &planned);
  Plan(&planned, nullptr, 0);
  return params;
}

void LoadCoordinator::OfferStores(const RequestState& request, int32_t num_tokens) {
  const int32_t size = options_.block_size;
  const int32_t begin = num_tokens / size * size;
  // Without prefix caching there are no hashes, and nothing to store.
  const auto hashed = static_cast<int32_t>(request.blocks.hashes().size());
  const int32_t end = std::min(request.blocks.num_committed_tokens() / size, hashed) * size;
  if (end > begin) cache_.CachedContents(request.blocks, begin, end, &to_store_);
}

void LoadCoordinator::PlanStores() {
  if (!to_store_.empty() && !transfers_.hangs(kNoPeer)) {
    std::vector<KvTransfer> planned;
    connector_->Transfer(Direction::kStore, to_store_, &planned);
    Plan(&planned, nullptr, 0);
  }
  to_store_.clear();
}

void LoadCoordinator::Finish(std::span<const KvTransferResult> results) {
  for (const KvTransferResult& result : results) {
    KvTransfers::InFlight* entry = transfers_.Find(result.id);
    if (entry == nullptr) {  // answered before, or never planned
      ++counters_.num_stray_transfer_results;
      continue;
    }
    const KvTransferResult sane = Sanitized(entry->transfer, result);
    connector_->Finish(entry->transfer, sane);
    KvLoad* load = entry->load;
    if (load != nullptr && !sane.status.ok()) {
      load->missing.push_back(entry->transfer.blocks[sane.num_blocks_done]);
    }
    PAGEMILL_CHECK(cache_.Unhold(PagesOf(entry->transfer)).ok());
    transfers_.End(result.id);
    if (load != nullptr && load->transfers.empty()) EndLoad(load);
  }
}

bool LoadCoordinator::Abandon(kv_cache::TransferId id) {
  KvTransfers::InFlight* entry = transfers_.Find(id);
  if (entry == nullptr || entry->abandoned) return false;
  transfers_.Abandon(entry);
  if (entry->load != nullptr && entry->load->request != nullptr) {
    RequestState* request = std::exchange(entry->load->request, nullptr);
    request->kv_looked_up = true;
    ++counters_.num_failed_kv_loads;
    awake_.push_back(request);
  }
  return true;
}

bool LoadCoordinator::Reset() {
  if (connector_ == nullptr) return true;
  std::vector<KvTransfer> planned;
  if (!connector_->Reset(&planned)) return false;
  Plan(&planned, nullptr, 0);
  return true;
}

void LoadCoordinator::Detach(const RequestState& request) {
  if (KvLoad* load = transfers_.FindLoad(request)) load->request = nullptr;
}

Status LoadCoordinator::CheckIntegrity(const Parking& parking,
                                       std::vector<const kv_cache::RequestBlocks*>* holders) const {
  for (const auto& load : transfers_.loads()) {
    holders->push_back(&load->blocks);
    const RequestState* request = load->request;
    if (request == nullptr) continue;
    if (request->status != RequestStatus::kParked || request->park_reason != ParkReason::kKvLoad) {
      return Internal("loads: a load for a request that does not wait for it");
    }
  }
  const auto waited_for =
      static_cast<size_t>(std::count_if(transfers_.loads().begin(), transfers_.loads().end(),
                                        [](const auto& load) { return load->request != nullptr; }));
  if (waited_for != parking.size(ParkReason::kKvLoad)) {
    return Internal("loads: a request waits for a load that does not exist");
  }
  if (parking.size(ParkReason::kKvLookup) > 0 && transfers_.empty()) {
    return Internal("loads: a request waits for an answer that will not come");
  }
  if (connector_ != nullptr) PAGEMILL_RETURN_IF_ERROR(connector_->CheckIntegrity());
  return transfers_.CheckIntegrity();
}

}  // namespace pagemill::scheduler::internal
