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

constexpr uint64_t kMagic = 0x32706f6772676d70;  // changes with the layout
constexpr int64_t kMaxSlotBytes = int64_t{64} << 20;
constexpr int64_t kPage = 4096;

// Followed by the states of all ranks, the lanes of all ranks and, from a page boundary, their
// slots.
struct alignas(64) SegmentHeader {
  uint64_t magic = kMagic;
  int64_t data = 0;
  int64_t pipeline = 0;
  int64_t tensor = 0;
  int64_t slot_bytes = 0;
};

// The lanes of one rank along one axis. An axis of one member has none.
int64_t NumLanes(const Topology& topology, Axis axis) {
  const int64_t members = topology.Size(axis);
  return members > 1 ? 1 + 2 * members : 0;
}

int64_t NumLanesWithSlots(const Topology& topology, Axis axis) {
  const int64_t members = topology.Size(axis);
  return members > 1 ? 1 + members : 0;
}

// The total of `count` for a rank along the axes before `end`.
template <typename Count>
int64_t SumBefore(const Topology& topology, size_t end, const Count& count) {
  int64_t sum = 0;
  for (size_t i = 0; i < end; ++i) sum += count(topology, kAxes[i]);
  return sum;
}

// The index of a rank's lane `index` of an axis among the lanes of all ranks.
template <typename Count>
int64_t Place(const Topology& topology, int32_t rank, Axis axis, LaneIndex index,
              const Count& count) {
  return rank * SumBefore(topology, kAxes.size(), count) +
         SumBefore(topology, static_cast<size_t>(axis), count) + index.value;
}

int64_t LanesOffset(const Topology& topology) {
  return static_cast<int64_t>(sizeof(SegmentHeader)) +
         topology.num_ranks() * static_cast<int64_t>(sizeof(RankState));
}

int64_t NumLanesOfAll(const Topology& topology) {
  return topology.num_ranks() * SumBefore(topology, kAxes.size(), NumLanes);
}

int64_t SlotsOffset(const Topology& topology) {
  const int64_t end =
      LanesOffset(topology) + NumLanesOfAll(topology) * static_cast<int64_t>(sizeof(Lane));
  return (end + kPage - 1) / kPage * kPage;
}

int64_t SegmentBytes(const SegmentOptions& options) {
  const Topology& topology = options.topology;
  const int64_t lanes = topology.num_ranks() * SumBefore(topology, kAxes.size(), NumLanesWithSlots);
  return SlotsOffset(topology) + 2 * lanes * options.slot_bytes;
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

Status SegmentOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(topology.Validate());
  if (slot_bytes < 64 || slot_bytes > kMaxSlotBytes || slot_bytes % 64 != 0) {
    return InvalidArgument("slot_bytes is " + std::to_string(slot_bytes) +
                           "; it must be a multiple of 64 from 64 to " +
                           std::to_string(kMaxSlotBytes));
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Create(const SegmentOptions& options) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  const int64_t bytes = SegmentBytes(options);
  const int fd = memfd_create("pagemill-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, bytes) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    return ResourceExhausted("a shared segment of " + std::to_string(bytes) +
                             " bytes cannot be made: " + reason);
  }
  // Prevents a peer from truncating it; on kernels without sealing, only that protection is lost.
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  StatusOr<std::byte*> base = Map(fd, bytes);
  if (!base.ok()) {
    close(fd);
    return base.status();
  }
  const Topology& topology = options.topology;
  new (*base) SegmentHeader{.data = topology.data,
                            .pipeline = topology.pipeline,
                            .tensor = topology.tensor,
                            .slot_bytes = options.slot_bytes};
  std::shared_ptr<SharedSegment> segment(new SharedSegment(fd, *base, options));
  for (int32_t r = 0; r < topology.num_ranks(); ++r) new (&segment->state(r)) RankState;
  Lane* lanes = reinterpret_cast<Lane*>(*base + LanesOffset(topology));
  for (int64_t i = 0; i < NumLanesOfAll(topology); ++i) new (lanes + i) Lane;
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
  const SegmentOptions options = {.topology = {.data = static_cast<int32_t>(header.data),
                                               .pipeline = static_cast<int32_t>(header.pipeline),
                                               .tensor = static_cast<int32_t>(header.tensor)},
                                  .slot_bytes = header.slot_bytes};
  if (!whole || header.magic != kMagic || !options.Validate().ok() ||
      status.st_size != SegmentBytes(options)) {
    return InvalidArgument(name + " is not a shared segment of this version of Pagemill");
  }
  PAGEMILL_ASSIGN_OR_RETURN(std::byte * base, Map(fd, status.st_size));
  return std::shared_ptr<SharedSegment>(new SharedSegment(/*fd=*/-1, base, options));
}

SharedSegment::~SharedSegment() {
  munmap(base_, static_cast<size_t>(SegmentBytes(options_)));
  if (fd_ >= 0) close(fd_);
}

RankState& SharedSegment::state(int32_t rank) const {
  return reinterpret_cast<RankState*>(base_ + sizeof(SegmentHeader))[rank];
}

Lane& SharedSegment::lane(int32_t rank, Axis axis, LaneIndex index) const {
  Lane* lanes = reinterpret_cast<Lane*>(base_ + LanesOffset(options_.topology));
  return lanes[Place(options_.topology, rank, axis, index, NumLanes)];
}

std::byte* SharedSegment::slots(int32_t rank, Axis axis, LaneIndex index) const {
  const int64_t place = Place(options_.topology, rank, axis, index, NumLanesWithSlots);
  return base_ + SlotsOffset(options_.topology) + 2 * place * options_.slot_bytes;
}

}  // namespace pagemill::comm
