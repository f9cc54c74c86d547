// File: cc/runner/ranks/page_segment.h
// The memory through which rank 0 copies KV pages of the other ranks of a host (rank_pages.h): for
// each of them lanes, each with a request, its answer and the bytes of a page.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<PageSegment> segment,
//                             PageSegment::Create(/*num_ranks=*/2, page_bytes));       // rank 0
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<PageSegment> same, PageSegment::Open(fd));  // others
//   PAGEMILL_RETURN_IF_ERROR(same->Join(/*rank=*/1));
//
// It has no name: other processes inherit its descriptor, so nothing is left behind. Its memory is
// taken as it is touched.
//
// Ownership: the mapping and, in the process that created it, the descriptor. Thread-safe, except
// for the memory that it points to.
#ifndef PAGEMILL_CC_RUNNER_RANKS_PAGE_SEGMENT_H_
#define PAGEMILL_CC_RUNNER_RANKS_PAGE_SEGMENT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"

namespace pagemill::runner {

// One page at a time between rank 0 and another rank.
struct PageLane {
  enum class Call : int32_t { kRead = 1, kWrite };

  // Rank 0 writes the request, and the page of a kWrite, before its number; numbers grow by one.
  alignas(64) std::atomic<uint32_t> requested{0};
  Call call = Call::kRead;
  int32_t group = 0;
  int32_t block = 0;
  int64_t page_bytes = 0;
  uint64_t num_collected = 0;  // the steps of which the page is

  // The other rank writes the answer, and the page of a kRead, before the number of the request.
  alignas(64) std::atomic<uint32_t> answered{0};
  int32_t code = 0;                 // a StatusCode
  std::array<char, 248> message{};  // of the status; ends at the first 0, or at its end
};

class PageSegment {
 public:
  static constexpr int32_t kNumLanes = 2;  // of a rank

  // For pages of at most `page_bytes` bytes of each rank. kInvalidArgument, kResourceExhausted.
  static StatusOr<std::shared_ptr<PageSegment>> Create(int32_t num_ranks, int64_t page_bytes);
  // Maps a segment that Create() made in another process. The caller keeps `fd`. kInvalidArgument
  // if it is not a segment of this version.
  static StatusOr<std::shared_ptr<PageSegment>> Open(int fd);
  ~PageSegment();
  PageSegment(const PageSegment&) = delete;
  PageSegment& operator=(const PageSegment&) = delete;

  // This process is that of `rank`, which is not 0. kInvalidArgument if there is no such rank.
  Status Join(int32_t rank);

  int fd() const { return fd_; }  // -1 if it was opened
  int32_t num_ranks() const { return num_ranks_; }
  int64_t page_bytes() const { return page_bytes_; }
  int32_t process_id(int32_t rank) const;  // 0: it has not joined
  PageLane& lane(int32_t rank, int32_t lane) const;
  std::span<std::byte> page(int32_t rank, int32_t lane) const;

 private:
  PageSegment(int fd, std::byte* base, int32_t num_ranks, int64_t page_bytes)
      : fd_(fd), base_(base), num_ranks_(num_ranks), page_bytes_(page_bytes) {}

  const int fd_;
  std::byte* const base_;
  const int32_t num_ranks_;
  const int64_t page_bytes_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_RANKS_PAGE_SEGMENT_H_
