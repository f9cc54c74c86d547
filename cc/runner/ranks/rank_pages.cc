#include "cc/runner/ranks/rank_pages.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "cc/comm/futex.h"

namespace pagemill::runner {
namespace {

using std::chrono::milliseconds;
using step::BlockId;
using step::GroupId;

constexpr milliseconds kLivenessInterval{20};  // at which rank 0 looks whether a rank has ended
constexpr milliseconds kIdleInterval{100};     // at which a server looks whether it ends
constexpr int kNiceness = 10;                  // steps are delayed little

std::string NameOf(int32_t rank, const PageSegment& segment) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(segment.num_ranks());
}

Status AnswerOf(const PageLane& lane) {
  const auto end = std::find(lane.message.begin(), lane.message.end(), '\0');
  return Status(static_cast<StatusCode>(lane.code), std::string(lane.message.begin(), end));
}

void SetAnswer(const Status& status, PageLane* lane) {
  lane->code = static_cast<int32_t>(status.code());
  lane->message = {};
  const std::string_view text = status.message();
  std::copy_n(text.begin(), std::min(text.size(), lane->message.size()), lane->message.begin());
}

// `bytes` are those of the pages of each rank.
Status CheckSize(size_t bytes, const PageSegment& segment, int32_t rank) {
  if (bytes == static_cast<size_t>(segment.page_bytes())) return OkStatus();
  return Internal("KV pages of " + NameOf(rank, segment) + " have " + std::to_string(bytes) +
                  " bytes, not " + std::to_string(segment.page_bytes()) + ": the ranks differ");
}

}  // namespace

class LeadingPages::Turn {
 public:
  explicit Turn(const LeadingPages* pages) : pages_(pages) {
    std::unique_lock lock(pages->mutex_);
    pages->returned_.wait(lock, [pages] { return !pages->idle_lanes_.empty(); });
    lane_ = pages->idle_lanes_.back();
    pages->idle_lanes_.pop_back();
  }
  ~Turn() {
    {
      const std::lock_guard lock(pages_->mutex_);
      pages_->idle_lanes_.push_back(lane_);
    }
    pages_->returned_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  int32_t lane() const { return lane_; }

 private:
  const LeadingPages* const pages_;
  int32_t lane_ = 0;
};

StatusOr<std::unique_ptr<LeadingPages>> LeadingPages::Create(std::shared_ptr<PageSegment> segment,
                                                             step::PageStore* own,
                                                             milliseconds limit) {
  PAGEMILL_RETURN_IF_ERROR(CheckSize(own->page_bytes(GroupId(0)), *segment, /*rank=*/0));
  for (int32_t rank = 1; rank < segment->num_ranks(); ++rank) {
    if (segment->process_id(rank) != 0) continue;
    return FailedPrecondition(NameOf(rank, *segment) + " has not joined those that copy pages");
  }
  return std::unique_ptr<LeadingPages>(new LeadingPages(std::move(segment), own, limit));
}

LeadingPages::LeadingPages(std::shared_ptr<PageSegment> segment, step::PageStore* own,
                           milliseconds limit)
    : segment_(std::move(segment)), own_(own), limit_(limit) {
  for (int32_t lane = 0; lane < PageSegment::kNumLanes; ++lane) idle_lanes_.push_back(lane);
  for (int32_t rank = 1; rank < segment_->num_ranks(); ++rank) {
    const int32_t process_id = segment_->process_id(rank);
    watches_.push_back(process_id == getpid() ? nullptr
                                              : std::make_unique<comm::ProcessWatch>(process_id));
    (void)HasEnded(rank);  // the watch holds the process from now on
  }
}

size_t LeadingPages::page_bytes(GroupId group) const {
  return own_->page_bytes(group) * static_cast<size_t>(segment_->num_ranks());
}

Status LeadingPages::Read(GroupId group, BlockId block, std::span<std::byte> to) const {
  PAGEMILL_CHECK(to.size() == page_bytes(group));
  const size_t part = own_->page_bytes(group);
  const Turn turn(this);
  PAGEMILL_RETURN_IF_ERROR(ended());
  Request(turn.lane(), PageLane::Call::kRead, group, block);
  Status status = own_->Read(group, block, to.first(part));
  for (int32_t rank = 1; rank < segment_->num_ranks(); ++rank) {
    const Status answer = Await(turn.lane(), rank);
    if (status.ok()) status = answer;
    if (!answer.ok()) continue;
    const auto page = segment_->page(rank, turn.lane()).first(part);
    std::ranges::copy(page, to.subspan(static_cast<size_t>(rank) * part).begin());
  }
  return status;
}

Status LeadingPages::Write(GroupId group, BlockId block, std::span<const std::byte> from) {
  PAGEMILL_CHECK(from.size() == page_bytes(group));
  const size_t part = own_->page_bytes(group);
  const Turn turn(this);
  PAGEMILL_RETURN_IF_ERROR(ended());
  for (int32_t rank = 1; rank < segment_->num_ranks(); ++rank) {
    std::ranges::copy(from.subspan(static_cast<size_t>(rank) * part, part),
                      segment_->page(rank, turn.lane()).begin());
  }
  Request(turn.lane(), PageLane::Call::kWrite, group, block);
  Status status = own_->Write(group, block, from.first(part));
  for (int32_t rank = 1; rank < segment_->num_ranks(); ++rank) {
    const Status answer = Await(turn.lane(), rank);
    if (status.ok()) status = answer;
  }
  return status;
}

void LeadingPages::Request(int32_t lane, PageLane::Call call, GroupId group, BlockId block) const {
  const uint64_t num_collected = num_collected_.load();
  for (int32_t rank = 1; rank < segment_->num_ranks(); ++rank) {
    PageLane& request = segment_->lane(rank, lane);
    request.call = call;
    request.group = group.value();
    request.block = block.value();
    request.page_bytes = static_cast<int64_t>(own_->page_bytes(group));
    request.num_collected = num_collected;
    request.requested.fetch_add(1);
    comm::FutexWakeAll(&request.requested);
  }
}

// The answer of a rank to the last request.
Status LeadingPages::Await(int32_t lane, int32_t rank) const {
  using Clock = std::chrono::steady_clock;
  PageLane& request = segment_->lane(rank, lane);
  const uint32_t number = request.requested.load();
  Clock::duration waited{0};
  while (true) {
    const uint32_t answered = request.answered.load();
    if (answered == number) break;
    PAGEMILL_RETURN_IF_ERROR(ended());
    if (waited >= limit_) return End(rank, /*kill=*/true);
    const Clock::time_point start = Clock::now();
    comm::FutexWait(&request.answered, answered, kLivenessInterval);
    waited += std::min<Clock::duration>(Clock::now() - start, kLivenessInterval);
    if (HasEnded(rank) && request.answered.load() != number) return End(rank, /*kill=*/false);
  }
  const Status answer = AnswerOf(request);
  if (answer.ok()) return answer;
  return Status(answer.code(), NameOf(rank, *segment_) + ": " + std::string(answer.message()));
}

bool LeadingPages::HasEnded(int32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto& watch = watches_[static_cast<size_t>(rank - 1)];
  return watch != nullptr && watch->HasEnded();
}

// Why all copies fail from now on.
Status LeadingPages::End(int32_t rank, bool kill) const {
  const std::lock_guard lock(mutex_);
  if (!ended_.ok()) return ended_;
  const auto& watch = watches_[static_cast<size_t>(rank - 1)];
  if (kill && watch != nullptr) watch->Kill();
  ended_ = Unavailable(NameOf(rank, *segment_) + " (process " +
                       std::to_string(segment_->process_id(rank)) + ") " +
                       (kill ? "did not copy a KV page within " + std::to_string(limit_.count()) +
                                   " ms, and was ended"
                             : "has died"));
  return ended_;
}

Status LeadingPages::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

StatusOr<std::unique_ptr<PageServer>> PageServer::Start(std::shared_ptr<PageSegment> segment,
                                                        int32_t rank, step::PageStore* pages) {
  PAGEMILL_RETURN_IF_ERROR(CheckSize(pages->page_bytes(GroupId(0)), *segment, rank));
  std::unique_ptr<PageServer> server(new PageServer(std::move(segment), rank, pages));
  for (int32_t lane = 0; lane < PageSegment::kNumLanes; ++lane) {
    server->threads_.emplace_back([self = server.get(), lane] { self->Serve(lane); });
  }
  return server;
}

PageServer::~PageServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (int32_t lane = 0; lane < PageSegment::kNumLanes; ++lane) {
    comm::FutexWakeAll(&segment_->lane(rank_, lane).requested);
  }
  for (std::thread& thread : threads_) thread.join();
}

void PageServer::CountCollected() {
  {
    const std::lock_guard lock(mutex_);
    ++num_collected_;
  }
  changed_.notify_all();
}

void PageServer::Serve(int32_t lane) {
  pthread_setname_np(pthread_self(), "pm-kv-pages");
  (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNiceness);  // this thread's
  PageLane& request = segment_->lane(rank_, lane);
  while (true) {
    const bool last = stopping_;
    const uint32_t number = request.requested.load();
    if (number != request.answered.load()) {
      SetAnswer(Copy(request, segment_->page(rank_, lane)), &request);
      request.answered.store(number);
      comm::FutexWakeAll(&request.answered);
    } else if (last) {
      return;
    } else {
      comm::FutexWait(&request.requested, number, kIdleInterval);
    }
  }
}

Status PageServer::Copy(const PageLane& request, std::span<std::byte> page) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || num_collected_ >= request.num_collected; });
    if (stopping_) return Unavailable("it has left the group");
  }
  const GroupId group(static_cast<uint16_t>(request.group));
  const size_t size = pages_->page_bytes(group);
  if (request.page_bytes != static_cast<int64_t>(size) || size > page.size()) {
    return Internal("its pages have " + std::to_string(size) + " bytes, those of rank 0 " +
                    std::to_string(request.page_bytes) + ": the ranks differ");
  }
  if (request.call == PageLane::Call::kRead) {
    return pages_->Read(group, BlockId(request.block), page.first(size));
  }
  return pages_->Write(group, BlockId(request.block), page.first(size));
}

}  // namespace pagemill::runner
