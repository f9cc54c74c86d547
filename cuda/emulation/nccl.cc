#include "cuda/emulation/nccl.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/testing/test_device.h"

namespace pagemill::gpu::emulation {
namespace {

using device::testing::TestWorker;
using Message = std::vector<std::byte>;

struct Comm {
  int group;
  int rank;
};

// Messages that are sent and not received, by group, sender and receiver.
class Mail {
 public:
  void Put(int group, int from, int to, Message message) {
    {
      std::lock_guard lock(mutex_);
      messages_[{group, from, to}].push_back(std::move(message));
    }
    changed_.notify_all();
  }
  // Empty if none comes.
  Message Take(int group, int from, int to) {
    std::unique_lock lock(mutex_);
    std::deque<Message>& waiting = messages_[{group, from, to}];
    if (!changed_.wait_for(lock, std::chrono::minutes(1), [&] { return !waiting.empty(); })) {
      return {};
    }
    Message message = std::move(waiting.front());
    waiting.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, int>, std::deque<Message>> messages_;
};

Mail& TheMail() {
  static auto& mail = *new Mail;
  return mail;
}

struct Transfer {
  bool is_send;
  std::byte* data;
  size_t bytes;
  int peer;
  Comm comm;
  EmulatedStream* stream;
};
thread_local std::vector<Transfer> grouped;

Status Run(const std::vector<Transfer>& transfers, TestWorker& worker) {
  for (const Transfer& t : transfers) {
    if (!t.is_send) continue;
    const std::byte* data = worker.Find(t.data, static_cast<int64_t>(t.bytes));
    if (data == nullptr) return Internal("a send from an address outside of device memory");
    TheMail().Put(t.comm.group, t.comm.rank, t.peer, Message(data, data + t.bytes));
  }
  for (const Transfer& t : transfers) {
    if (t.is_send) continue;
    std::byte* data = worker.Find(t.data, static_cast<int64_t>(t.bytes));
    const Message message = TheMail().Take(t.comm.group, t.peer, t.comm.rank);
    if (data == nullptr) return Internal("a receive to an address outside of device memory");
    if (message.size() != t.bytes) return Internal("a rank receives what another has not sent");
    std::memcpy(data, message.data(), t.bytes);
  }
  return OkStatus();
}

}  // namespace
}  // namespace pagemill::gpu::emulation

using pagemill::gpu::emulation::Comm;
using pagemill::gpu::emulation::grouped;
using pagemill::gpu::emulation::Transfer;

int emulatedNcclGetUniqueId(emulatedNcclId* id) {
  static std::atomic<int> num_groups = 0;
  const int group = ++num_groups;
  *id = {};
  std::memcpy(id->bytes, &group, sizeof(group));
  return 0;
}

int emulatedNcclCommInitRank(void** comm, int, emulatedNcclId id, int rank) {
  int group = 0;
  std::memcpy(&group, id.bytes, sizeof(group));
  *comm = new Comm{group, rank};
  return 0;
}

int emulatedNcclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  return 0;
}

int emulatedNcclGroupStart() { return 0; }

int emulatedNcclGroupEnd() {
  const std::vector<Transfer> transfers = std::exchange(grouped, {});
  if (transfers.empty()) return 0;
  pagemill::gpu::emulation::EnqueueWork(
      transfers[0].stream, [transfers](pagemill::device::testing::TestWorker& worker) {
        return pagemill::gpu::emulation::Run(transfers, worker);
      });
  return 0;
}

int emulatedNcclSend(const void* data, size_t count, int, int peer, void* comm,
                     emulatedStream_t stream) {
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
  grouped.push_back({true, bytes, count, peer, *static_cast<Comm*>(comm), stream});
  return 0;
}

int emulatedNcclRecv(void* data, size_t count, int, int peer, void* comm,
                     emulatedStream_t stream) {
  grouped.push_back(
      {false, static_cast<std::byte*>(data), count, peer, *static_cast<Comm*>(comm), stream});
  return 0;
}

const char* emulatedNcclGetErrorString(int) { return "emulated NCCL has no errors"; }
