#include "cc/engine/kv_tiers.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <span>
#include <utility>

#include "cc/kv_cache/connectors/file.h"
#include "cc/kv_cache/connectors/handover.h"
#include "cc/kv_cache/tiers/tiered_connector.h"
#include "cc/kv_transfer/disk_medium.h"
#include "cc/kv_transfer/file_medium.h"
#include "cc/kv_transfer/handover_worker.h"
#include "cc/kv_transfer/host_medium.h"
#include "cc/kv_transfer/threaded_worker.h"
#include "cc/net/net_address.h"

namespace pagemill::engine {

using kv_cache::GroupId;

namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr int64_t kLogPauseNanos = 10'000 * kNanosPerMilli;

int32_t NumGroups(const kv_cache::KvCacheOptions& cache) {
  return static_cast<int32_t>(cache.groups.size());
}

size_t LargestPage(const kv_cache::KvCacheOptions& cache, const step::PageStore& pages) {
  size_t largest = 0;
  for (int32_t g = 0; g < NumGroups(cache); ++g) {
    largest = std::max(largest, pages.page_bytes(GroupId(static_cast<uint16_t>(g))));
  }
  return largest;
}

// Pages that wait to be stored cannot be evicted, and what is not stored at once never is: at most
// half of the pool waits.
int32_t MostBlocksInFlight(const kv_cache::KvCacheOptions& cache) {
  return std::clamp(cache.num_blocks / 2, 1, 1024);
}

// How many slots a medium of `bytes` has; at least two make sense.
StatusOr<int64_t> NumSlots(int64_t bytes, int64_t slot_bytes, const char* flag) {
  if (bytes / slot_bytes >= 2) return bytes / slot_bytes;
  return InvalidArgument(std::string(flag) + ": " + std::to_string(bytes) +
                         " bytes do not hold two KV blocks of " + std::to_string(slot_bytes) +
                         " bytes");
}

std::string Hex(const Digest128& digest) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
  return text;
}

}  // namespace

StatusOr<Digest128> KvDigest(const KvTierOptions& options, int32_t block_size) {
  PAGEMILL_ASSIGN_OR_RETURN(std::string text, options.fingerprint());
  text += "\n" + std::to_string(block_size);
  return Xxh3_128(text.data(), text.size());
}

KvTiers::KvTiers(const KvTierOptions& options, const Clock* clock, LogSink log)
    : timeout_ns_(options.transfer_timeout_ms * kNanosPerMilli),
      clock_(clock),
      log_(std::move(log)),
      connector_(options.connector),
      worker_(options.worker) {}

StatusOr<std::unique_ptr<KvTiers>> KvTiers::Create(const KvTierOptions& options,
                                                   const kv_cache::KvCacheOptions& cache,
                                                   step::PageStore* pages, const Clock* clock,
                                                   LogSink log) {
  if (!cache.enable_prefix_caching || cache.groups.empty()) {
    return InvalidArgument(
        "KV tiers and connectors find blocks by the prefix cache, which is off or of no use to "
        "this model (--enable-prefix-caching)");
  }
  std::unique_ptr<KvTiers> tiers(new KvTiers(options, clock, std::move(log)));
  if (tiers->connector_ != nullptr) return tiers;
  if (pages == nullptr) {
    return Unimplemented(
        "this runner's KV pages cannot be copied elsewhere: it takes no KV tiers and no connector "
        "(--kv-offloading-bytes, --kv-offloading-disk-path, --kv-connector-path, "
        "--kv-shared-memory-bytes; --executor native has pages)");
  }
  if (options.shared_memory_bytes > 0) {
    PAGEMILL_RETURN_IF_ERROR(tiers->AddHandover(options, cache, pages));
  } else if (!options.connector_folder.empty()) {
    PAGEMILL_RETURN_IF_ERROR(tiers->AddFolder(options, cache, pages));
  } else {
    PAGEMILL_RETURN_IF_ERROR(tiers->AddTiers(options, cache, pages));
  }
  tiers->worker_ = tiers->owned_worker_.get();
  tiers->connector_ = tiers->owned_connector_.get();
  return tiers;
}

Status KvTiers::AddTiers(const KvTierOptions& options, const kv_cache::KvCacheOptions& cache,
                         step::PageStore* pages) {
  const size_t page_bytes = LargestPage(cache, *pages);
  auto worker = std::make_unique<kv_transfer::ThreadedWorker>(options.num_step_threads);
  kv_cache::TieredConnector::Options tiers;
  tiers.policy = options.policy;
  tiers.max_blocks_in_flight = MostBlocksInFlight(cache);
  std::shared_ptr<kv_transfer::HostArena> arena;
  if (options.host_bytes > 0) {
    PAGEMILL_ASSIGN_OR_RETURN(
        tiers.host_blocks,
        NumSlots(options.host_bytes, static_cast<int64_t>(page_bytes), "--kv-offloading-bytes"));
    PAGEMILL_ASSIGN_OR_RETURN(
        const std::span<std::byte> memory,
        pages->NewHostMemory(static_cast<size_t>(tiers.host_blocks) * page_bytes));
    arena = memory.empty()
                ? std::make_shared<kv_transfer::HostArena>(tiers.host_blocks, page_bytes)
                : std::make_shared<kv_transfer::HostArena>(memory, page_bytes);
    worker->Add(kv_cache::kHostMedium, std::make_unique<kv_transfer::HostMedium>(arena, pages));
  }
  if (!options.disk_path.empty()) {
    PAGEMILL_ASSIGN_OR_RETURN(
        tiers.disk_blocks,
        NumSlots(options.disk_bytes, kv_transfer::DiskMedium::SlotFileBytes(page_bytes),
                 "--kv-offloading-disk-bytes"));
    PAGEMILL_ASSIGN_OR_RETURN(
        std::unique_ptr<kv_transfer::DiskMedium> disk,
        kv_transfer::DiskMedium::Create(
            {.path = options.disk_path, .num_slots = tiers.disk_blocks, .slot_bytes = page_bytes},
            pages, arena));
    worker->Add(kv_cache::kDiskMedium, std::move(disk));
  }
  PAGEMILL_ASSIGN_OR_RETURN(owned_connector_, kv_cache::TieredConnector::Create(tiers));
  owned_worker_ = std::move(worker);
  return OkStatus();
}

Status KvTiers::AddHandover(const KvTierOptions& options, const kv_cache::KvCacheOptions& cache,
                            step::PageStore* pages) {
  kv_transfer::HandoverWorker::Options shared;
  PAGEMILL_ASSIGN_OR_RETURN(shared.segment.format.fingerprint, KvDigest(options, cache.block_size));
  shared.segment.format.page_bytes = LargestPage(cache, *pages);
  shared.segment.bytes = options.shared_memory_bytes;
  shared.segment.keep_ms = options.transfer_timeout_ms;
  shared.timeout_ms = options.transfer_timeout_ms;
  shared.secret = options.transfer_secret;
  if (!options.transfer_listen.empty()) {
    PAGEMILL_ASSIGN_OR_RETURN(shared.listen, net::NetAddress::Parse(options.transfer_listen));
  }
  for (const std::string& peer : options.transfer_peers) {
    PAGEMILL_ASSIGN_OR_RETURN(net::NetAddress address, net::NetAddress::Parse(peer));
    shared.peers.push_back(std::move(address));
  }
  shared.num_step_threads = options.num_step_threads;
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<kv_transfer::HandoverWorker> worker,
                            kv_transfer::HandoverWorker::Create(shared, pages));
  owned_connector_ =
      std::make_unique<kv_cache::HandoverConnector>(worker->engine_id(), worker->address());
  owned_worker_ = std::move(worker);
  return OkStatus();
}

Status KvTiers::AddFolder(const KvTierOptions& options, const kv_cache::KvCacheOptions& cache,
                          step::PageStore* pages) {
  PAGEMILL_ASSIGN_OR_RETURN(const Digest128 digest, KvDigest(options, cache.block_size));
  PAGEMILL_ASSIGN_OR_RETURN(
      std::unique_ptr<kv_transfer::FileMedium> files,
      kv_transfer::FileMedium::Create({.folder = options.connector_folder + "/" + Hex(digest),
                                       .max_bytes = options.connector_bytes,
                                       .fingerprint = digest},
                                      pages));
  auto worker = std::make_unique<kv_transfer::ThreadedWorker>(options.num_step_threads);
  worker->Add(kv_cache::kFileMedium, std::move(files));
  owned_worker_ = std::move(worker);
  owned_connector_ = std::make_unique<kv_cache::FileConnector>(
      kv_cache::FileConnector::Options{.max_blocks_in_flight = MostBlocksInFlight(cache)});
  return OkStatus();
}

bool KvTiers::Move(scheduler::Scheduler* scheduler) {
  if (scheduler->num_transfers_in_flight() == 0) return false;
  const bool any = TakeResults(scheduler);
  AbandonLate(scheduler);
  Start(scheduler, /*only_forgets=*/false);
  return any;
}

void KvTiers::Start(scheduler::Scheduler* scheduler, bool only_forgets) {
  scheduler->TakeTransfers(&transfers_);
  const int64_t now_ns = clock_->NowNanos();
  for (kv_cache::KvTransfer& transfer : transfers_) {
    if (only_forgets && transfer.direction != kv_cache::KvTransfer::Direction::kForget) continue;
    started_.emplace(transfer.id, now_ns);
    worker_->Start(std::move(transfer));
  }
  transfers_.clear();
}

// True if there were any.
bool KvTiers::TakeResults(scheduler::Scheduler* scheduler) {
  worker_->Poll(&results_);
  for (const kv_cache::KvTransferResult& result : results_) {
    started_.erase(result.id);
    abandoned_.erase(result.id);
    if (!result.status.ok()) LogFailure(result.status);
  }
  const bool any = !results_.empty();
  scheduler->FinishTransfers(results_);
  results_.clear();
  return any;
}

// Ids grow as transfers are planned, which is nearly the order of their starts.
void KvTiers::AbandonLate(scheduler::Scheduler* scheduler) {
  const int64_t now_ns = clock_->NowNanos();
  while (!started_.empty() && now_ns - started_.begin()->second > timeout_ns_) {
    scheduler->AbandonTransfer(started_.begin()->first);
    worker_->Abandon(started_.begin()->first);
    LogFailure(Unavailable("it took longer than " + std::to_string(timeout_ns_ / kNanosPerMilli) +
                           " ms (--kv-transfer-timeout-ms)"));
    abandoned_.insert(started_.begin()->first);
    started_.erase(started_.begin());
  }
}

// A medium that fails may fail for every block: one line in a while.
void KvTiers::LogFailure(const Status& why) {
  const int64_t now_ns = clock_->NowNanos();
  if (last_log_ns_ != INT64_MIN && now_ns - last_log_ns_ < kLogPauseNanos) return;
  last_log_ns_ = now_ns;
  Log(log_, LogSeverity::kWarning, "a KV transfer failed: " + why.ToString());
}

void KvTiers::Close(scheduler::Scheduler* scheduler) {
  Start(scheduler, /*only_forgets=*/true);
  if (owned_worker_ == nullptr) DrainHostsWorker(scheduler);
  owned_worker_.reset();
  worker_ = nullptr;
}

void KvTiers::DrainHostsWorker(scheduler::Scheduler* scheduler) {
  constexpr int64_t kPauseMicros = 10'000;
  const int64_t end_ns = clock_->NowNanos() + timeout_ns_;
  while (!(started_.empty() && abandoned_.empty())) {
    worker_->Wait(kPauseMicros);
    TakeResults(scheduler);
    if (clock_->NowNanos() >= end_ns) break;
  }
  const size_t left = started_.size() + abandoned_.size();
  if (left == 0) return;
  Log(log_, LogSeverity::kError,
      std::to_string(left) + " KV transfers of the host's worker did not end within " +
          std::to_string(timeout_ns_ / kNanosPerMilli) +
          " ms (--kv-transfer-timeout-ms); the worker must not touch KV pages any more");
}

}  // namespace pagemill::engine
