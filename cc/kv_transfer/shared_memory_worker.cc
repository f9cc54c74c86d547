#include "cc/kv_transfer/shared_memory_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_transfer/copy_thread.h"

namespace pagemill::kv_transfer {

using kv_cache::BlockContent;
using kv_cache::ContentKey;
using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using Direction = kv_cache::KvTransfer::Direction;

namespace {

// While a job waits for another process, which cannot wake this one.
constexpr std::chrono::milliseconds kPause(1);

int64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

ContentKey KeyOf(const BlockContent& block) { return {block.hash, block.group}; }

}  // namespace

StatusOr<std::unique_ptr<SharedMemoryWorker>> SharedMemoryWorker::Create(const Options& options,
                                                                         step::PageStore* pages) {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<SharedSegment> segment,
                            SharedSegment::Create(options.segment));
  return std::unique_ptr<SharedMemoryWorker>(
      new SharedMemoryWorker(options, std::move(segment), pages));
}

SharedMemoryWorker::SharedMemoryWorker(const Options& options,
                                       std::unique_ptr<SharedSegment> segment,
                                       step::PageStore* pages)
    : options_(options),
      segment_(std::move(segment)),
      pages_(pages),
      regions_(pages->regions()),
      loads_(options.segment.format, pages) {
  thread_ = std::thread([this] { Work(); });
}

SharedMemoryWorker::~SharedMemoryWorker() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  filled_.notify_all();
  thread_.join();
}

void SharedMemoryWorker::Start(KvTransfer transfer) {
  {
    std::lock_guard lock(mutex_);
    started_.push_back(std::move(transfer));
  }
  filled_.notify_all();
}

void SharedMemoryWorker::Abandon(kv_cache::TransferId id) {
  {
    std::lock_guard lock(mutex_);
    abandoned_.push_back(id);
  }
  filled_.notify_all();
}

void SharedMemoryWorker::Poll(std::vector<KvTransferResult>* results) {
  std::lock_guard lock(mutex_);
  for (KvTransferResult& result : results_) results->push_back(std::move(result));
  results_.clear();
}

void SharedMemoryWorker::Wait(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  result_is_there_.wait_for(lock, std::chrono::microseconds(timeout_us),
                            [this] { return !results_.empty(); });
}

void SharedMemoryWorker::Work() {
  BecomeCopyThread(options_.num_step_threads);
  bool moved = false;
  std::unique_lock lock(mutex_);
  while (true) {
    const auto has_news = [this] { return closing_ || !started_.empty() || !abandoned_.empty(); };
    if (sends_.empty() && loads_.empty()) {
      filled_.wait(lock, has_news);
    } else if (!moved) {
      filled_.wait_for(lock, kPause, has_news);
    }
    if (closing_) return;
    std::vector<KvTransfer> started = std::exchange(started_, {});
    const std::vector<kv_cache::TransferId> abandoned = std::exchange(abandoned_, {});
    lock.unlock();
    for (KvTransfer& transfer : started) Accept(std::move(transfer));
    for (kv_cache::TransferId id : abandoned) {
      for (Job& job : sends_) job.abandoned = job.abandoned || job.transfer.id == id;
      loads_.Abandon(id);
    }
    moved = Advance();
    lock.lock();
    if (ended_.empty()) continue;
    for (KvTransferResult& result : ended_) results_.push_back(std::move(result));
    ended_.clear();
    result_is_there_.notify_all();
  }
}

void SharedMemoryWorker::Accept(KvTransfer transfer) {
  if (transfer.direction == Direction::kForget) {
    ended_.push_back({transfer.id, 0, Forget()});
  } else if (transfer.direction == Direction::kSend) {
    last_number_ = std::max(last_number_, transfer.handover.number);
    sends_.push_back({std::move(transfer)});
  } else if (transfer.direction == Direction::kLoad) {
    loads_.Add(std::move(transfer));
  } else {
    ended_.push_back({transfer.id, 0, Internal("shared memory only sends, loads and forgets")});
  }
}

// Sends that wait for room are over; what is there is removed.
Status SharedMemoryWorker::Forget() {
  for (const Job& job : sends_) End(job, Unavailable("the prefix cache was reset"));
  sends_.clear();
  PAGEMILL_RETURN_IF_ERROR(segment_->Forget());
  return SetDone();
}

// Handovers before the first send that is under way are done.
Status SharedMemoryWorker::SetDone() {
  return segment_->SetDone(sends_.empty() ? last_number_
                                          : sends_.front().transfer.handover.number - 1);
}

void SharedMemoryWorker::End(const Job& job, Status status) {
  ended_.push_back({job.transfer.id, static_cast<int32_t>(job.num_done), std::move(status)});
}

// A block of each transfer that can get on. False if none can.
bool SharedMemoryWorker::Advance() {
  bool moved = false;
  for (auto job = sends_.begin(); job != sends_.end();) {
    const Outcome outcome = job == sends_.begin() || job->abandoned ? Send(&*job) : Outcome();
    moved = moved || outcome.step != Step::kWaits;
    if (outcome.step != Step::kOver) {
      ++job;
      continue;
    }
    const Job over = std::move(*job);
    job = sends_.erase(job);
    const Status done = SetDone();
    End(over, outcome.status.ok() ? done : outcome.status);
  }
  moved = loads_.Advance(&ended_) || moved;
  return moved;
}

SharedMemoryWorker::Outcome SharedMemoryWorker::Send(Job* job) {
  if (job->num_done == job->transfer.blocks.size()) return {Step::kOver, OkStatus()};
  if (job->abandoned) {
    return {Step::kOver,
            Unavailable("no engine takes the KV that is in the shared memory, and it is full "
                        "(--kv-shared-memory-bytes)")};
  }
  const BlockContent& block = job->transfer.blocks[job->num_done];
  const StatusOr<std::span<const std::byte>> page = Page(block);
  if (!page.ok()) return {Step::kOver, page.status()};
  const StatusOr<bool> put =
      segment_->Put(KeyOf(block), job->transfer.handover.number, *page, NowMs());
  if (!put.ok()) return {Step::kOver, put.status()};
  if (!*put) return {Step::kWaits, OkStatus()};
  ++job->num_done;
  return {Step::kMoved, OkStatus()};
}

// The page itself if it lies in one piece of host memory, else a copy.
StatusOr<std::span<const std::byte>> SharedMemoryWorker::Page(const BlockContent& block) {
  const size_t size = pages_->page_bytes(block.group);
  if (regions_.size() == 1) {
    const auto at = static_cast<size_t>(block.block.value()) * regions_[0].page_bytes;
    return std::span<const std::byte>(regions_[0].bytes.subspan(at, size));
  }
  buffer_.resize(size);
  PAGEMILL_RETURN_IF_ERROR(pages_->Read(block.group, block.block, buffer_));
  return std::span<const std::byte>(buffer_);
}

}  // namespace pagemill::kv_transfer
