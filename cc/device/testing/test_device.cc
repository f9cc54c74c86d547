#include "cc/device/testing/test_device.h"

#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

namespace pagemill::device::testing {
namespace {

constexpr size_t kReservedBytes = size_t{1} << 32;
// Gap between allocations, so that addresses past the end of one belong to none.
constexpr size_t kGap = 4096;

class TestGraph final : public Graph {
 public:
  explicit TestGraph(std::vector<TestWork> work) : work(std::move(work)) {}
  const std::vector<TestWork> work;
};

}  // namespace

std::byte* TestWorker::Translate(const void* address, int64_t bytes) const {
  const std::byte* const wanted = static_cast<const std::byte*>(address);
  std::lock_guard lock(device_.mutex_);
  const auto after = device_.allocations_.upper_bound(wanted);
  if (after == device_.allocations_.begin()) return nullptr;
  const auto& [begin, memory] = *std::prev(after);
  const int64_t offset = wanted - begin;
  if (offset + bytes > static_cast<int64_t>(memory.size())) return nullptr;
  return const_cast<std::byte*>(memory.data()) + offset;
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
    Enqueue([to, from](TestWorker& worker) {
      std::byte* target = worker.Translate(to, static_cast<int64_t>(from.size()));
      if (target == nullptr) return Internal("copy to an address outside of device memory");
      std::memcpy(target, from.data(), from.size());
      return OkStatus();
    });
  }

  void CopyToHost(std::span<std::byte> to, const std::byte* from) override {
    Enqueue([to, from](TestWorker& worker) {
      const std::byte* source = worker.Translate(from, static_cast<int64_t>(to.size()));
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
    return std::unique_ptr<Graph>(std::make_unique<TestGraph>(std::exchange(captured_, {})));
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
    while (true) {
      changed_.wait(lock, [this] { return !queue_.empty() || closing_; });
      if (queue_.empty()) return;
      const TestWork work = std::move(queue_.front());
      queue_.pop_front();
      const bool healthy = status_.ok();
      lock.unlock();
      device_->WaitUntilReleased();
      Status status = healthy ? work(worker) : OkStatus();
      lock.lock();
      if (!status.ok()) status_ = std::move(status);
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

TestDevice::TestDevice() {
  void* reserved =
      mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PAGEMILL_CHECK(reserved != MAP_FAILED);
  reserved_ = {static_cast<std::byte*>(reserved), kReservedBytes};
}

TestDevice::~TestDevice() {
  PAGEMILL_CHECK(allocations_.empty());
  munmap(reserved_.data(), reserved_.size());
}

StatusOr<DeviceMemory> TestDevice::Allocate(int64_t bytes, const char* purpose) {
  const size_t size = static_cast<size_t>(bytes);
  const size_t step = (size + kGap - 1) / kGap * kGap + kGap;
  std::lock_guard lock(mutex_);
  if (size > reserved_.size() || reserved_.size() - num_reserved_bytes_used_ < step) {
    return ResourceExhausted("the test device has no addresses left for " + std::to_string(bytes) +
                             " bytes of " + purpose);
  }
  std::byte* const address = reserved_.data() + num_reserved_bytes_used_;
  num_reserved_bytes_used_ += step;
  allocations_.emplace(address, std::vector<std::byte>(size, std::byte{0xff}));
  return DeviceMemory(this, {address, size});
}

void TestDevice::Free(std::span<std::byte> bytes) {
  std::lock_guard lock(mutex_);
  PAGEMILL_CHECK(allocations_.erase(bytes.data()) == 1);
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

}  // namespace pagemill::device::testing
