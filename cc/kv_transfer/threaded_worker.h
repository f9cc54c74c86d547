// File: cc/kv_transfer/threaded_worker.h
// A TransferWorker made of media, each of which copies on its own thread, one transfer after
// another in the order of their starts.
//
//   ThreadedWorker worker;
//   worker.Add("host", std::make_unique<HostMedium>(arena, pages));
//   worker.Add("disk", std::move(disk));
//   worker.Start(transfer);
//   worker.Wait(1000);
//   worker.Poll(&results);
//
// A transfer for an unknown medium fails. The destructor finishes each medium's current transfer,
// carries out each kForget and drops the rest. The threads yield to compute threads
// (copy_thread.h). Thread safety: Add() first; then that of TransferWorker.
#ifndef PAGEMILL_CC_KV_TRANSFER_THREADED_WORKER_H_
#define PAGEMILL_CC_KV_TRANSFER_THREADED_WORKER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cc/kv_cache/transfer.h"

namespace pagemill::kv_transfer {

// Obligations of an implementer: Run() carries out the transfer and returns its result; only one
// thread calls it at a time.
class TransferMedium {
 public:
  virtual ~TransferMedium() = default;
  virtual kv_cache::KvTransferResult Run(const kv_cache::KvTransfer& transfer) = 0;
};

class ThreadedWorker final : public kv_cache::TransferWorker {
 public:
  // `num_step_threads`: threads that compute steps; 0 = unknown.
  explicit ThreadedWorker(int32_t num_step_threads = 0) : num_step_threads_(num_step_threads) {}
  ~ThreadedWorker() override;
  void Add(const std::string& name, std::unique_ptr<TransferMedium> medium);

  void Start(kv_cache::KvTransfer transfer) override;
  void Poll(std::vector<kv_cache::KvTransferResult>* results) override;
  void Wait(int64_t timeout_us) override;

 private:
  struct Lane {
    std::unique_ptr<TransferMedium> medium;
    std::deque<kv_cache::KvTransfer> queue;  // guarded by mutex_
    std::condition_variable filled;
    std::thread thread;
  };
  void Work(Lane* lane);

  const int32_t num_step_threads_;
  std::map<std::string, std::unique_ptr<Lane>> lanes_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<kv_cache::KvTransferResult> results_;  // guarded by mutex_
  bool closing_ = false;                             // guarded by mutex_
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_THREADED_WORKER_H_
