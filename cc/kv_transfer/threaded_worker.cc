#include "cc/kv_transfer/threaded_worker.h"

#include <chrono>
#include <utility>

#include "cc/kv_transfer/copy_thread.h"

namespace pagemill::kv_transfer {

using kv_cache::KvTransfer;

ThreadedWorker::~ThreadedWorker() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  for (auto& [name, lane] : lanes_) lane->filled.notify_all();
  for (auto& [name, lane] : lanes_) lane->thread.join();
}

void ThreadedWorker::Add(const std::string& name, std::unique_ptr<TransferMedium> medium) {
  auto lane = std::make_unique<Lane>();
  Lane* added = lane.get();
  added->medium = std::move(medium);
  lanes_[name] = std::move(lane);
  added->thread = std::thread([this, added] { Work(added); });
}

void ThreadedWorker::Start(KvTransfer transfer) {
  const auto lane = lanes_.find(transfer.medium);
  {
    std::lock_guard lock(mutex_);
    if (lane == lanes_.end()) {
      results_.push_back(
          {transfer.id, 0, NotFound("no medium is called \"" + transfer.medium + "\"")});
      return;
    }
    lane->second->queue.push_back(std::move(transfer));
  }
  lane->second->filled.notify_one();
}

void ThreadedWorker::Poll(std::vector<kv_cache::KvTransferResult>* results) {
  std::lock_guard lock(mutex_);
  for (kv_cache::KvTransferResult& result : results_) results->push_back(std::move(result));
  results_.clear();
}

void ThreadedWorker::Wait(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, std::chrono::microseconds(timeout_us),
                  [this] { return !results_.empty(); });
}

void ThreadedWorker::Work(Lane* lane) {
  BecomeCopyThread(num_step_threads_);
  std::unique_lock lock(mutex_);
  while (true) {
    lane->filled.wait(lock, [&] { return closing_ || !lane->queue.empty(); });
    if (closing_) {
      std::erase_if(lane->queue, [](const KvTransfer& transfer) {
        return transfer.direction != KvTransfer::Direction::kForget;
      });
    }
    if (lane->queue.empty()) return;
    const KvTransfer transfer = std::move(lane->queue.front());
    lane->queue.pop_front();
    lock.unlock();
    kv_cache::KvTransferResult result = lane->medium->Run(transfer);
    lock.lock();
    results_.push_back(std::move(result));
    ended_.notify_all();
  }
}

}  // namespace pagemill::kv_transfer
