#include "cc/device/testing/test_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

// AddressSanitizer's, in programs that are linked with it, even if this file is not compiled for it.
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* begin, size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* begin, size_t bytes);
}

namespace pagemill::device::testing {
namespace {

// Of addresses, which are never reused: what a test allocates in all.
constexpr size_t kReservedBytes = size_t{1} << 35;
// Each allocation ends near the end of a page of its own, with a page without access behind it.
constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 64;

size_t RoundUp(size_t size, size_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// The allocation that contains `bytes` bytes at `address`; empty if none does.
std::span<std::byte> FindIn(const std::map<const std::byte*, std::span<std::byte>>& allocations,
                            const std::byte* address, size_t bytes) {
  const auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return {};
  const auto& [begin, memory] = *std::prev(after);
  return static_cast<size_t>(address - begin) + bytes <= memory.size() ? memory
                                                                       : std::span<std::byte>();
}

// The pages that hold an allocation.
std::span<std::byte> PagesOf(std::span<std::byte> bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  std::byte* const first = bytes.data() - begin % kPage;
  return {first, RoundUp(static_cast<size_t>(bytes.data() + bytes.size() - first), kPage)};
}

// Tells AddressSanitizer which bytes of these pages must not be accessed: all but `bytes`.
void PoisonAround(std::span<std::byte> pages, std::span<std::byte> bytes) {
  if (__asan_poison_memory_region == nullptr) return;
  __asan_poison_memory_region(pages.data(), pages.size());
  __asan_unpoison_memory_region(bytes.data(), bytes.size());
}

class TestGraph final : public Graph {
 public:
  explicit TestGraph(std::vector<TestWork> work) : work(std::move(work)) {}
  const std::vector<TestWork> work;
};

}  // namespace

std::byte* TestWorker::Find(const void* address, int64_t bytes) const {
  const std::byte* const wanted = static_cast<const std::byte*>(address);
  std::lock_guard lock(device_.mutex_);
  const size_t size = static_cast<size_t>(bytes);
  std::span<std::byte> memory = FindIn(device_.allocations_, wanted, size);
  if (memory.data() == nullptr) memory = FindIn(device_.mapped_, wanted, size);
  return memory.data() == nullptr ? nullptr : memory.data() + (wanted - memory.data());
}

// Executes its work on a thread of its own.
class TestDevice::StreamOnThread final : public TestStream {
 public:
  explicit StreamOnThread(TestDevice* device) : device_(device), thread_([this] { Run(); }) {}

  ~StreamOnThread() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void CopyToDevice(std::byte* to, std::span<const std::byte> from) override {
    device_->CountCopy(from);
    Enqueue([to, from](TestWorker& worker) {
      std::byte* target = worker.Find(to, static_cast<int64_t>(from.size()));
      if (target == nullptr) return Internal("copy to an address outside of device memory");
      std::memcpy(target, from.data(), from.size());
      return OkStatus();
    });
  }

  void CopyToHost(std::span<std::byte> to, const std::byte* from) override {
    device_->CountCopy(to);
    Enqueue([to, from](TestWorker& worker) {
      const std::byte* source = worker.Find(from, static_cast<int64_t>(to.size()));
      if (source == nullptr) return Internal("copy from an address outside of device memory");
      std::memcpy(to.data(), source, to.size());
      return OkStatus();
    });
  }

  void Enqueue(TestWork work) override {
    if (capturing_) {
      captured_.push_back(std::move(work));
      return;
    }
    {
      std::lock_guard lock(device_->mutex_);
      ++device_->num_enqueued_;
    }
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
      ++num_enqueued_;
    }
    changed_.notify_all();
  }

  void Record(Event& event) override;

  void BeginCapture() override { capturing_ = true; }
  StatusOr<std::unique_ptr<Graph>> EndCapture() override {
    capturing_ = false;
    auto graph = std::make_unique<TestGraph>(std::exchange(captured_, {}));
    std::lock_guard lock(device_->mutex_);
    if (device_->refuses_graphs_) return ResourceExhausted("the test device refuses graphs");
    return std::unique_ptr<Graph>(std::move(graph));
  }
  void Replay(const Graph& graph) override {
    for (const TestWork& work : static_cast<const TestGraph&>(graph).work) Enqueue(work);
    std::lock_guard lock(device_->mutex_);
    ++device_->num_replays_;
  }

  // Waits until `num_done` pieces of work are done, or one has failed.
  Status WaitFor(int64_t num_done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_done_ >= num_done; });
    return status_;
  }

 private:
  void Run() {
    ThreadPool pool({.num_threads = 1});
    TestWorker worker(*device_, pool);
    std::unique_lock lock(mutex_);
    bool is_executing = false;
    while (true) {
      changed_.wait(lock, [this] { return !queue_.empty() || closing_; });
      if (queue_.empty()) return;
      const TestWork work = std::move(queue_.front());
      queue_.pop_front();
      const bool healthy = status_.ok();
      lock.unlock();
      device_->WaitUntilReleased();
      if (!std::exchange(is_executing, true)) device_->Begin();
      Status status = healthy ? work(worker) : OkStatus();
      lock.lock();
      if (!status.ok()) status_ = std::move(status);
      // Changing access takes longer than most work, so pieces that follow each other share it.
      if (queue_.empty() && std::exchange(is_executing, false)) device_->End();
      ++num_done_;
      changed_.notify_all();
    }
  }

  TestDevice* const device_;
  bool capturing_ = false;
  std::vector<TestWork> captured_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TestWork> queue_;
  int64_t num_enqueued_ = 0;
  int64_t num_done_ = 0;
  bool closing_ = false;
  Status status_;
  std::thread thread_;  // last: it uses the others
};

class TestDevice::PointInStream final : public Event {
 public:
  Status Synchronize() override {
    return stream == nullptr ? OkStatus() : stream->WaitFor(num_done);
  }
  StreamOnThread* stream = nullptr;
  int64_t num_done = 0;
};

void TestDevice::StreamOnThread::Record(Event& event) {
  PointInStream& point = static_cast<PointInStream&>(event);
  std::lock_guard lock(mutex_);
  point.stream = this;
  point.num_done = num_enqueued_;
}

TestDevice::TestDevice(int64_t memory_bytes) : memory_bytes_(memory_bytes) {
  void* reserved =
      mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PAGEMILL_CHECK(reserved != MAP_FAILED);
  reserved_ = {static_cast<std::byte*>(reserved), kReservedBytes};
}

TestDevice::~TestDevice() {
  PAGEMILL_CHECK(allocations_.empty() && host_allocations_.empty());
  const std::span<std::byte> used = reserved_.first(num_reserved_bytes_used_);
  PoisonAround(used, used);  // the addresses may be mapped by others
  munmap(reserved_.data(), reserved_.size());
}

StatusOr<DeviceMemory> TestDevice::Allocate(int64_t bytes, const char* purpose) {
  const size_t size = static_cast<size_t>(bytes);
  const size_t pages = RoundUp(size, kPage);
  std::lock_guard lock(mutex_);
  if (bytes > memory_bytes_ - allocated_bytes_) {
    return ResourceExhausted("the test device has no memory left for " + std::to_string(bytes) +
                             " bytes of " + purpose);
  }
  if (size > reserved_.size() || reserved_.size() - num_reserved_bytes_used_ < pages + kPage) {
    return ResourceExhausted("the test device has no addresses left for " + std::to_string(bytes) +
                             " bytes of " + purpose);
  }
  std::byte* const first = reserved_.data() + num_reserved_bytes_used_;
  num_reserved_bytes_used_ += pages + kPage;
  const std::span<std::byte> memory(first + pages - RoundUp(size, kAlignment), size);
  if (pages > 0) {
    PAGEMILL_CHECK(mprotect(first, pages, PROT_READ | PROT_WRITE) == 0);
    std::memset(first, 0xff, pages);
    if (num_executing_ == 0) PAGEMILL_CHECK(mprotect(first, pages, PROT_NONE) == 0);
    PoisonAround({first, pages}, memory);
  }
  allocations_.emplace(memory.data(), memory);
  allocated_bytes_ += bytes;
  return DeviceMemory(this, memory);
}

void TestDevice::Free(std::span<std::byte> bytes) {
  std::lock_guard lock(mutex_);
  PAGEMILL_CHECK(allocations_.erase(bytes.data()) == 1);
  allocated_bytes_ -= static_cast<int64_t>(bytes.size());
  if (bytes.empty()) return;
  const std::span<std::byte> pages = PagesOf(bytes);
  PAGEMILL_CHECK(mmap(pages.data(), pages.size(), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                      0) == pages.data());
}

StatusOr<int> TestDevice::Share(const std::byte* address, size_t* offset) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.empty()) {
    return InvalidArgument("no allocation begins at an address that is to be shared");
  }
  const std::span<std::byte> pages = PagesOf(found->second);
  const int fd = memfd_create("test device", MFD_CLOEXEC);
  PAGEMILL_CHECK(fd >= 0);
  PAGEMILL_CHECK(mprotect(pages.data(), pages.size(), PROT_READ | PROT_WRITE) == 0);
  PoisonAround(pages, pages);  // all of them are written
  PAGEMILL_CHECK(write(fd, pages.data(), pages.size()) == static_cast<ssize_t>(pages.size()));
  PoisonAround(pages, found->second);
  const int access = num_executing_ == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
  PAGEMILL_CHECK(mmap(pages.data(), pages.size(), access, MAP_SHARED | MAP_FIXED, fd, 0) ==
                 pages.data());
  *offset = static_cast<size_t>(address - pages.data());
  return fd;
}

StatusOr<HostMemory> TestDevice::AllocateHost(int64_t bytes, const char*) {
  const size_t size = static_cast<size_t>(bytes);
  if (size == 0) return HostMemory();
  void* const data = std::aligned_alloc(kAlignment, RoundUp(size, kAlignment));
  PAGEMILL_CHECK(data != nullptr);
  std::memset(data, 0xff, size);
  const std::span<std::byte> memory(static_cast<std::byte*>(data), size);
  std::lock_guard lock(mutex_);
  host_allocations_.emplace(memory.data(), memory);
  host_bytes_ += bytes;
  most_host_bytes_ = std::max(most_host_bytes_, host_bytes_);
  return HostMemory(this, memory);
}

StatusOr<HostMemory> TestDevice::AllocateMapped(int64_t bytes, const char* purpose) {
  PAGEMILL_ASSIGN_OR_RETURN(HostMemory memory, AllocateHost(bytes, purpose));
  std::lock_guard lock(mutex_);
  if (bytes > 0) mapped_.emplace(memory.data(), memory.bytes());
  return memory;
}

void TestDevice::FreeHost(std::span<std::byte> bytes) {
  std::lock_guard lock(mutex_);
  mapped_.erase(bytes.data());
  PAGEMILL_CHECK(host_allocations_.erase(bytes.data()) == 1);
  host_bytes_ -= static_cast<int64_t>(bytes.size());
  std::free(bytes.data());
}

MemoryBytes TestDevice::CountMemory() {
  std::lock_guard lock(mutex_);
  return {.free = memory_bytes_ - allocated_bytes_, .total = memory_bytes_};
}

void TestDevice::CountCopy(std::span<const std::byte> host) {
  std::lock_guard lock(mutex_);
  if (host.empty() || !FindIn(host_allocations_, host.data(), host.size()).empty()) return;
  ++num_pageable_copies_;
}

void TestDevice::SetAccess(bool accessible) {
  for (const auto& [address, memory] : allocations_) {
    if (memory.empty()) continue;
    const std::span<std::byte> pages = PagesOf(memory);
    const int access = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
    PAGEMILL_CHECK(mprotect(pages.data(), pages.size(), access) == 0);
  }
}

void TestDevice::Begin() {
  std::lock_guard lock(mutex_);
  if (num_executing_++ == 0) SetAccess(true);
}

void TestDevice::End() {
  std::lock_guard lock(mutex_);
  if (--num_executing_ == 0) SetAccess(false);
}

StatusOr<std::unique_ptr<Stream>> TestDevice::NewStream() {
  return std::unique_ptr<Stream>(std::make_unique<StreamOnThread>(this));
}

std::unique_ptr<Event> TestDevice::NewEvent() { return std::make_unique<PointInStream>(); }

void TestDevice::Hold() {
  std::lock_guard lock(mutex_);
  held_ = true;
}

void TestDevice::Release() {
  {
    std::lock_guard lock(mutex_);
    held_ = false;
  }
  released_.notify_all();
}

void TestDevice::RefuseGraphs() {
  std::lock_guard lock(mutex_);
  refuses_graphs_ = true;
}

void TestDevice::WaitUntilReleased() {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [this] { return !held_; });
}

int64_t TestDevice::num_enqueued() const {
  std::lock_guard lock(mutex_);
  return num_enqueued_;
}

int64_t TestDevice::num_replays() const {
  std::lock_guard lock(mutex_);
  return num_replays_;
}

int64_t TestDevice::num_pageable_copies() const {
  std::lock_guard lock(mutex_);
  return num_pageable_copies_;
}

int64_t TestDevice::most_host_bytes() const {
  std::lock_guard lock(mutex_);
  return most_host_bytes_;
}

}  // namespace pagemill::device::testing
