#include "cc/kv_transfer/handover_worker.h"

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

// While a job waits for another process on this machine, which cannot wake this one.
constexpr int kPauseMs = 1;
// While there are connections, whose time is limited.
constexpr int kTickMs = 500;

int64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

ContentKey KeyOf(const BlockContent& block) { return {block.hash, block.group}; }

}  // namespace

StatusOr<std::unique_ptr<HandoverWorker>> HandoverWorker::Create(const Options& options,
                                                                 step::PageStore* pages) {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<SharedSegment> segment,
                            SharedSegment::Create(options.segment));
  std::unique_ptr<SegmentServer> server;
  if (options.listen) {
    PeerSession::Config config{.secret = net::Secret(options.secret),
                               .format = options.segment.format,
                               .engine_id = segment->engine_id(),
                               .pages = pages,
                               .timeout_ms = options.timeout_ms};
    PAGEMILL_ASSIGN_OR_RETURN(server, SegmentServer::Create(*options.listen, std::move(config)));
  }
  std::unique_ptr<HandoverWorker> made(
      new HandoverWorker(options, std::move(segment), std::move(server), pages));
  if (made->wakeup_.fd() < 0) return ResourceExhausted("there are no more file descriptors");
  made->thread_ = std::thread([worker = made.get()] { worker->Work(); });
  return made;
}

HandoverWorker::HandoverWorker(const Options& options, std::unique_ptr<SharedSegment> segment,
                               std::unique_ptr<SegmentServer> server, step::PageStore* pages)
    : options_(options),
      segment_(std::move(segment)),
      pages_(pages),
      regions_(pages->regions()),
      loads_(options.segment.format, pages,
             [pages](const KvTransfer& load, size_t index, std::span<const std::byte> bytes) {
               const BlockContent& block = load.blocks[index];
               return pages->Write(block.group, block.block, bytes);
             }),
      server_(std::move(server)),
      remote_loads_(options.peers, {.secret = net::Secret(options.secret),
                                    .format = options.segment.format,
                                    .pages = pages,
                                    .timeout_ms = options.timeout_ms}) {}

HandoverWorker::~HandoverWorker() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wakeup_.Notify();
  if (thread_.joinable()) thread_.join();
}

kv_cache::HandoverAddress HandoverWorker::address() const {
  if (server_ == nullptr) return {};
  return {server_->address().host(), std::to_string(server_->address().port())};
}

void HandoverWorker::Start(KvTransfer transfer) {
  {
    std::lock_guard lock(mutex_);
    started_.push_back(std::move(transfer));
  }
  wakeup_.Notify();
}

void HandoverWorker::Abandon(kv_cache::TransferId id) {
  {
    std::lock_guard lock(mutex_);
    abandoned_.push_back(id);
  }
  wakeup_.Notify();
}

void HandoverWorker::Poll(std::vector<KvTransferResult>* results) {
  std::lock_guard lock(mutex_);
  for (KvTransferResult& result : results_) results->push_back(std::move(result));
  results_.clear();
}

void HandoverWorker::Wait(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  result_is_there_.wait_for(lock, std::chrono::microseconds(timeout_us),
                            [this] { return !results_.empty(); });
}

void HandoverWorker::Work() {
  BecomeCopyThread(options_.num_step_threads);
  bool moved = false;
  while (true) {
    WaitForEvents(moved);
    std::unique_lock lock(mutex_);
    if (closing_) return;
    std::vector<KvTransfer> started = std::exchange(started_, {});
    const std::vector<kv_cache::TransferId> abandoned = std::exchange(abandoned_, {});
    lock.unlock();
    for (KvTransfer& transfer : started) Accept(std::move(transfer));
    for (kv_cache::TransferId id : abandoned) {
      for (Job& job : sends_) job.abandoned = job.abandoned || job.transfer.id == id;
      loads_.Abandon(id);
      remote_loads_.Abandon(id);
    }
    moved = Advance();
    if (ended_.empty()) continue;
    lock.lock();
    for (KvTransferResult& result : ended_) results_.push_back(std::move(result));
    ended_.clear();
    result_is_there_.notify_all();
  }
}

void HandoverWorker::WaitForEvents(bool moved) {
  polled_.assign(1, {.fd = wakeup_.fd(), .events = POLLIN, .revents = 0});
  remote_loads_.AddPolled(&polled_);
  bool connected = polled_.size() > 1;
  bool waits = !sends_.empty() || !loads_.empty();
  if (server_ != nullptr) {
    server_->AddPolled(&polled_);
    connected = connected || !server_->is_idle();
    waits = waits || server_->is_waiting();
  }
  const int pause_ms = waits ? kPauseMs : connected ? kTickMs : -1;
  (void)poll(polled_.data(), polled_.size(), moved ? 0 : pause_ms);
  if (polled_[0].revents != 0) wakeup_.Clear();
}

void HandoverWorker::Accept(KvTransfer transfer) {
  if (transfer.direction == Direction::kForget) {
    ended_.push_back({transfer.id, 0, Forget()});
  } else if (transfer.direction == Direction::kSend) {
    last_number_ = std::max(last_number_, transfer.handover.number);
    sends_.push_back({std::move(transfer)});
  } else if (transfer.direction == Direction::kLoad) {
    RemotePeer* const peer = remote_loads_.Find(transfer.handover);
    if (peer != nullptr) {
      peer->Add(std::move(transfer));
    } else {
      loads_.Add(std::move(transfer));
    }
  } else {
    ended_.push_back({transfer.id, 0, Internal("a handover only sends, loads and forgets")});
  }
}

// Sends that wait for room are over; what is there is removed.
Status HandoverWorker::Forget() {
  for (const Job& job : sends_) End(job, Unavailable("the prefix cache was reset"));
  sends_.clear();
  PAGEMILL_RETURN_IF_ERROR(segment_->Forget());
  return SetDone();
}

// Handovers before the first send that is under way are done.
Status HandoverWorker::SetDone() {
  return segment_->SetDone(sends_.empty() ? last_number_
                                          : sends_.front().transfer.handover.number - 1);
}

void HandoverWorker::End(const Job& job, Status status) {
  ended_.push_back({job.transfer.id, static_cast<int32_t>(job.num_done), std::move(status)});
}

// A block of each transfer that can get on. False if none can.
bool HandoverWorker::Advance() {
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
  const int64_t now_ms = NowMs();
  moved = remote_loads_.Advance(now_ms, &ended_) || moved;
  if (server_ != nullptr) moved = server_->Advance(now_ms) || moved;
  return moved;
}

HandoverWorker::Outcome HandoverWorker::Send(Job* job) {
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
StatusOr<std::span<const std::byte>> HandoverWorker::Page(const BlockContent& block) {
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
