#include "cc/runner/ranks/page_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "cc/comm/group.h"  // kMaxRanks

namespace pagemill::runner {
namespace {

constexpr uint64_t kMagic = 0x31676170676d6770;  // changes with the layout
constexpr int64_t kMaxPageBytes = int64_t{1} << 36;
constexpr int64_t kAlignment = 4096;

// Followed by the lanes of ranks 1, 2, ... and, from a multiple of kAlignment, their pages.
struct alignas(64) SegmentHeader {
  uint64_t magic = kMagic;
  int64_t num_ranks = 0;
  int64_t page_bytes = 0;
  std::array<std::atomic<int32_t>, comm::kMaxRanks> process_ids{};
};

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t NumLanes(int32_t num_ranks) { return (num_ranks - 1) * PageSegment::kNumLanes; }

// The index of a lane among those of all ranks.
int64_t Place(int32_t rank, int32_t lane) { return NumLanes(rank) + lane; }

int64_t PagesOffset(int32_t num_ranks) {
  return Aligned(static_cast<int64_t>(sizeof(SegmentHeader)) +
                 NumLanes(num_ranks) * static_cast<int64_t>(sizeof(PageLane)));
}

int64_t SegmentBytes(int32_t num_ranks, int64_t page_bytes) {
  return PagesOffset(num_ranks) + NumLanes(num_ranks) * Aligned(page_bytes);
}

bool IsInRange(int64_t num_ranks, int64_t page_bytes) {
  return num_ranks >= 2 && num_ranks <= comm::kMaxRanks && page_bytes >= 1 &&
         page_bytes <= kMaxPageBytes;
}

StatusOr<std::byte*> Map(int fd, int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("shared memory of " + std::to_string(bytes) +
                             " bytes for KV pages cannot be mapped: " + std::strerror(errno));
  }
  return static_cast<std::byte*>(base);
}

}  // namespace

StatusOr<std::shared_ptr<PageSegment>> PageSegment::Create(int32_t num_ranks, int64_t page_bytes) {
  if (!IsInRange(num_ranks, page_bytes)) {
    return InvalidArgument("pages of " + std::to_string(page_bytes) + " bytes of " +
                           std::to_string(num_ranks) + " ranks must have from 1 to " +
                           std::to_string(kMaxPageBytes) + " bytes, and 2 to " +
                           std::to_string(comm::kMaxRanks) + " ranks");
  }
  const int64_t bytes = SegmentBytes(num_ranks, page_bytes);
  const int fd = memfd_create("pagemill-kv-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, bytes) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    return ResourceExhausted("shared memory of " + std::to_string(bytes) +
                             " bytes for KV pages cannot be made: " + reason);
  }
  // Prevents a peer from truncating it; on kernels without sealing, only that protection is lost.
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  StatusOr<std::byte*> base = Map(fd, bytes);
  if (!base.ok()) {
    close(fd);
    return base.status();
  }
  new (*base) SegmentHeader{.num_ranks = num_ranks, .page_bytes = page_bytes};
  std::shared_ptr<PageSegment> segment(new PageSegment(fd, *base, num_ranks, page_bytes));
  for (int32_t rank = 1; rank < num_ranks; ++rank) {
    for (int32_t lane = 0; lane < kNumLanes; ++lane) new (&segment->lane(rank, lane)) PageLane;
  }
  return segment;
}

StatusOr<std::shared_ptr<PageSegment>> PageSegment::Open(int fd) {
  const std::string name = "descriptor " + std::to_string(fd);
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    return InvalidArgument(name + " is not open: " + std::strerror(errno));
  }
  struct {
    uint64_t magic = 0;
    int64_t num_ranks = 0;
    int64_t page_bytes = 0;
  } header;
  const bool whole = pread(fd, &header, sizeof(header), 0) == sizeof(header);
  if (!whole || header.magic != kMagic || !IsInRange(header.num_ranks, header.page_bytes) ||
      status.st_size != SegmentBytes(static_cast<int32_t>(header.num_ranks), header.page_bytes)) {
    return InvalidArgument(name + " is not memory for KV pages of this version of Pagemill");
  }
  PAGEMILL_ASSIGN_OR_RETURN(std::byte * base, Map(fd, status.st_size));
  return std::shared_ptr<PageSegment>(new PageSegment(
      /*fd=*/-1, base, static_cast<int32_t>(header.num_ranks), header.page_bytes));
}

PageSegment::~PageSegment() {
  munmap(base_, static_cast<size_t>(SegmentBytes(num_ranks_, page_bytes_)));
  if (fd_ >= 0) close(fd_);
}

Status PageSegment::Join(int32_t rank) {
  if (rank < 1 || rank >= num_ranks_) {
    return InvalidArgument("rank is " + std::to_string(rank) + "; those that copy pages for rank " +
                           "0 are 1 to " + std::to_string(num_ranks_ - 1));
  }
  reinterpret_cast<SegmentHeader*>(base_)->process_ids[static_cast<size_t>(rank)] = getpid();
  return OkStatus();
}

int32_t PageSegment::process_id(int32_t rank) const {
  return reinterpret_cast<SegmentHeader*>(base_)->process_ids[static_cast<size_t>(rank)];
}

PageLane& PageSegment::lane(int32_t rank, int32_t lane) const {
  return reinterpret_cast<PageLane*>(base_ + sizeof(SegmentHeader))[Place(rank, lane)];
}

std::span<std::byte> PageSegment::page(int32_t rank, int32_t lane) const {
  std::byte* const page =
      base_ + PagesOffset(num_ranks_) + Place(rank, lane) * Aligned(page_bytes_);
  return {page, static_cast<size_t>(page_bytes_)};
}

}  // namespace pagemill::runner
