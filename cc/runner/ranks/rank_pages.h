// File: cc/runner/ranks/rank_pages.h
// The KV pages of all ranks of a host as one store: a page is those of all ranks, one behind the
// other in their order.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<LeadingPages> pages,
//                             LeadingPages::Create(segment, executor.pages()));    // rank 0
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<PageServer> server,
//                             PageServer::Start(segment, rank, executor.pages())); // any other
//
// Tiers and sessions copy pages from threads of their own while steps run, so their requests do not
// go between the steps (rank_steps.h), but through lanes of shared memory (page_segment.h), each of
// which a thread of the other rank serves. All ranks copy at the same time. No step waits for a
// copy, and a copy only for steps that rank 0 has collected: another rank may still be computing
// those, and writing to their pages.
//
// Every wait of rank 0 ends: with an answer, with the end of the other process, or after a limit.
// A rank that has not answered by then may copy later, into a page that has become another's. So
// its process is ended, and with it the group. Afterwards every copy fails at once.
//
// Ownership: the stores of the ranks are the callers', and outlive the objects. Thread safety: all
// methods.
#ifndef PAGEMILL_CC_RUNNER_RANKS_RANK_PAGES_H_
#define PAGEMILL_CC_RUNNER_RANKS_RANK_PAGES_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/process_watch.h"
#include "cc/runner/ranks/page_segment.h"
#include "cc/step/page_store.h"

namespace pagemill::runner {

class LeadingPages final : public step::PageStore {
 public:
  // For a page of a rank. Time in which this process is stopped itself does not count.
  static constexpr std::chrono::milliseconds kLimit{30'000};

  // `own` are rank 0's pages, which have the size of the segment's. kFailedPrecondition if a rank
  // has not joined the segment.
  static StatusOr<std::unique_ptr<LeadingPages>> Create(std::shared_ptr<PageSegment> segment,
                                                        step::PageStore* own,
                                                        std::chrono::milliseconds limit = kLimit);

  size_t page_bytes(step::GroupId group) const override;
  // kUnavailable: a rank has ended, or was ended.
  Status Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const override;
  Status Write(step::GroupId group, step::BlockId block, std::span<const std::byte> from) override;

  // Rank 0 has collected a step, and has sent the others word of it.
  void CountCollected() { num_collected_.fetch_add(1); }

 private:
  class Turn;  // of a thread, with a lane

  LeadingPages(std::shared_ptr<PageSegment> segment, step::PageStore* own,
               std::chrono::milliseconds limit);
  void Request(int32_t lane, PageLane::Call call, step::GroupId group, step::BlockId block) const;
  Status Await(int32_t lane, int32_t rank) const;
  bool HasEnded(int32_t rank) const;
  Status End(int32_t rank, bool kill) const;
  Status ended() const;

  const std::shared_ptr<PageSegment> segment_;
  step::PageStore* const own_;
  const std::chrono::milliseconds limit_;
  std::atomic<uint64_t> num_collected_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable returned_;
  mutable std::vector<int32_t> idle_lanes_;  // guarded by mutex_
  // For ranks 1, 2, ...; null: a thread of this process. Guarded by mutex_.
  mutable std::vector<std::unique_ptr<comm::ProcessWatch>> watches_;
  mutable Status ended_;  // why all copies fail, guarded by mutex_
};

// Serves the requests of rank 0 until it is destroyed; then it answers those that wait with
// kUnavailable.
class PageServer {
 public:
  // The segment has been joined. kInternal: the pages have another size than rank 0's.
  static StatusOr<std::unique_ptr<PageServer>> Start(std::shared_ptr<PageSegment> segment,
                                                     int32_t rank, step::PageStore* pages);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // This rank has collected a step because rank 0 sent word that it does.
  void CountCollected();

 private:
  PageServer(std::shared_ptr<PageSegment> segment, int32_t rank, step::PageStore* pages)
      : segment_(std::move(segment)), rank_(rank), pages_(pages) {}
  void Serve(int32_t lane);
  Status Copy(const PageLane& request, std::span<std::byte> page);

  const std::shared_ptr<PageSegment> segment_;
  const int32_t rank_;
  step::PageStore* const pages_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t num_collected_ = 0;  // guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;  // one for each lane
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_RANKS_RANK_PAGES_H_
