#include "cc/comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

namespace pagemill::comm {
namespace {

constexpr uint64_t kMagic = 0x31706f6772676d70;  // changes with the layout
constexpr int64_t kMaxSlotBytes = int64_t{64} << 20;

struct alignas(64) SegmentHeader {
  uint64_t magic = kMagic;
  int64_t num_ranks = 0;
  int64_t slot_bytes = 0;
};

int64_t SlotsOffset(const GroupOptions& options) {
  constexpr int64_t kPage = 4096;
  const int64_t states = static_cast<int64_t>(sizeof(SegmentHeader)) +
                         options.num_ranks * static_cast<int64_t>(sizeof(RankState));
  return (states + kPage - 1) / kPage * kPage;
}

int64_t SegmentBytes(const GroupOptions& options) {
  return SlotsOffset(options) + 2 * options.num_ranks * options.slot_bytes;
}

StatusOr<std::byte*> Map(int fd, int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("a shared segment of " + std::to_string(bytes) +
                             " bytes cannot be mapped: " + std::strerror(errno));
  }
  return static_cast<std::byte*>(base);
}

}  // namespace

Status GroupOptions::Validate() const {
  if (num_ranks < 1 || num_ranks > kMaxRanks) {
    return InvalidArgument("num_ranks is " + std::to_string(num_ranks) + "; it must be from 1 to " +
                           std::to_string(kMaxRanks));
  }
  if (slot_bytes < 64 || slot_bytes > kMaxSlotBytes || slot_bytes % 64 != 0) {
    return InvalidArgument("slot_bytes is " + std::to_string(slot_bytes) +
                           "; it must be a multiple of 64 from 64 to " +
                           std::to_string(kMaxSlotBytes));
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Create(const GroupOptions& options) {
  PM_RETURN_IF_ERROR(options.Validate());
  const int64_t bytes = SegmentBytes(options);
  const int fd = memfd_create("pagemill-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, bytes) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    return ResourceExhausted("a shared segment of " + std::to_string(bytes) +
                             " bytes cannot be made: " + reason);
  }
  // No peer can shorten it under the others; a kernel that cannot seal loses only that.
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  StatusOr<std::byte*> base = Map(fd, bytes);
  if (!base.ok()) {
    close(fd);
    return base.status();
  }
  new (*base) SegmentHeader{.num_ranks = options.num_ranks, .slot_bytes = options.slot_bytes};
  std::shared_ptr<SharedSegment> segment(new SharedSegment(fd, *base, options));
  for (int32_t r = 0; r < options.num_ranks; ++r) new (&segment->state(r)) RankState;
  return segment;
}

StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Open(int fd) {
  const std::string name = "descriptor " + std::to_string(fd);
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    return InvalidArgument(name + " is not open: " + std::strerror(errno));
  }
  SegmentHeader header;
  const bool whole = pread(fd, &header, sizeof(header), 0) == sizeof(header);
  const GroupOptions options = {.num_ranks = static_cast<int32_t>(header.num_ranks),
                                .slot_bytes = header.slot_bytes};
  if (!whole || header.magic != kMagic || !options.Validate().ok() ||
      status.st_size != SegmentBytes(options)) {
    return InvalidArgument(name + " is no shared segment of this version of Pagemill");
  }
  PM_ASSIGN_OR_RETURN(std::byte * base, Map(fd, status.st_size));
  return std::shared_ptr<SharedSegment>(new SharedSegment(/*fd=*/-1, base, options));
}

SharedSegment::~SharedSegment() {
  munmap(base_, static_cast<size_t>(SegmentBytes(options_)));
  if (fd_ >= 0) close(fd_);
}

RankState& SharedSegment::state(int32_t rank) const {
  return reinterpret_cast<RankState*>(base_ + sizeof(SegmentHeader))[rank];
}

std::byte* SharedSegment::slot(int32_t rank, uint32_t parity) const {
  return base_ + SlotsOffset(options_) + (2 * int64_t{rank} + (parity & 1)) * options_.slot_bytes;
}

}  // namespace pagemill::comm
