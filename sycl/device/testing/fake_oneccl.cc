// A oneCCL for ranks that are threads: what tests open as libccl.so.2. Test code only.
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <sycl/sycl.hpp>
#include <vector>

namespace {

struct Group {
  explicit Group(size_t ranks) : data(ranks), met(static_cast<std::ptrdiff_t>(ranks)) {}
  std::vector<std::vector<std::byte>> data;  // of each rank
  std::barrier<> met;
};

struct Comm {
  Group* group;
  size_t rank;
};

struct Id {
  Group** group;
  std::byte rest[4096 - sizeof(Group**)];
};

std::mutex making;
std::atomic<int> num_gathers = 0;

}  // namespace

extern "C" {

int onecclSetDevice(uint32_t) { return 0; }

// The group, which the first rank makes.
int onecclGetUniqueId(Id* id) {
  id->group = new Group*(nullptr);
  return 0;
}

int onecclCommInitRank(void** comm, size_t ranks, Id id, int rank) {
  std::lock_guard lock(making);
  if (*id.group == nullptr) *id.group = new Group(ranks);
  *comm = new Comm{*id.group, static_cast<size_t>(rank)};
  return 0;
}

int onecclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  return 0;
}

int onecclAllGather(const void* from, void* to, size_t count, int type, void* comm, void* queue) {
  constexpr int kBytes = 1, kInvalidArgument = 4;
  if (type != kBytes) return kInvalidArgument;
  auto& own_queue = *static_cast<sycl::queue*>(queue);
  auto& [group, rank] = *static_cast<Comm*>(comm);
  std::vector<std::byte>& own = group->data[rank];
  own.resize(count);
  own_queue.memcpy(own.data(), from, count).wait();
  group->met.arrive_and_wait();
  for (size_t r = 0; r < group->data.size(); ++r) {
    own_queue.memcpy(static_cast<std::byte*>(to) + r * count, group->data[r].data(), count).wait();
  }
  group->met.arrive_and_wait();
  ++num_gathers;
  return 0;
}

// For tests: calls so far.
int fakeOnecclNumGathers() { return num_gathers; }

const char* onecclGetErrorString(int) { return "wrong use of a fake"; }

}  // extern "C"
