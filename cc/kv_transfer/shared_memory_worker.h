// File: cc/kv_transfer/shared_memory_worker.h
// The other side of SharedMemoryConnector: sends blocks by this engine's segment of shared memory
// (shared_segment.h), and loads them from those of its peers (peer_loads.h), on a thread of its
// own.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto worker, SharedMemoryWorker::Create(options, pages));
//   SharedMemoryConnector connector(worker->engine_id());
//
// A send ends when its blocks are in the segment, which may have to wait until peers have taken
// others. A load waits for blocks that its peer has not sent yet, and ends early if they will not
// come, if the peer's process is gone, or if it is abandoned. Neither hinders the others.
// Thread safety: that of TransferWorker.
#ifndef PAGEMILL_CC_KV_TRANSFER_SHARED_MEMORY_WORKER_H_
#define PAGEMILL_CC_KV_TRANSFER_SHARED_MEMORY_WORKER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/peer_loads.h"
#include "cc/kv_transfer/shared_segment.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

class SharedMemoryWorker final : public kv_cache::TransferWorker {
 public:
  struct Options {
    SharedSegment::Options segment = {};
    int32_t num_step_threads = 0;  // threads that compute steps; 0 = unknown
  };

  // `pages` must outlive the worker. Errors are those of SharedSegment::Create().
  static StatusOr<std::unique_ptr<SharedMemoryWorker>> Create(const Options& options,
                                                              step::PageStore* pages);
  // Removes the segment; transfers under way have no result.
  ~SharedMemoryWorker() override;

  const std::string& engine_id() const { return segment_->engine_id(); }

  void Start(kv_cache::KvTransfer transfer) override;
  void Poll(std::vector<kv_cache::KvTransferResult>* results) override;
  void Wait(int64_t timeout_us) override;
  void Abandon(kv_cache::TransferId id) override;

 private:
  struct Job {
    kv_cache::KvTransfer transfer;
    size_t num_done = 0;  // leading blocks
    bool abandoned = false;
  };
  // A step of a send: it got on, it has to wait, or it is over, with this status.
  enum class Step { kMoved, kWaits, kOver };
  struct Outcome {
    Step step = Step::kWaits;
    Status status;
  };

  SharedMemoryWorker(const Options& options, std::unique_ptr<SharedSegment> segment,
                     step::PageStore* pages);

  // The thread.
  void Work();
  void Accept(kv_cache::KvTransfer transfer);
  bool Advance();
  void End(const Job& job, Status status);
  Outcome Send(Job* job);
  Status Forget();
  Status SetDone();
  StatusOr<std::span<const std::byte>> Page(const kv_cache::BlockContent& block);

  const Options options_;
  const std::unique_ptr<SharedSegment> segment_;
  step::PageStore* const pages_;
  const std::vector<step::PageRegion> regions_;

  // The thread's own.
  std::list<Job> sends_;  // in the order of their numbers; only the first one moves
  PeerLoads loads_;
  uint64_t last_number_ = 0;       // of the sends that were accepted
  std::vector<std::byte> buffer_;  // one page
  std::vector<kv_cache::KvTransferResult> ended_;

  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable result_is_there_;
  // Guarded by mutex_.
  std::vector<kv_cache::KvTransfer> started_;
  std::vector<kv_cache::TransferId> abandoned_;
  std::vector<kv_cache::KvTransferResult> results_;
  bool closing_ = false;

  std::thread thread_;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_SHARED_MEMORY_WORKER_H_
