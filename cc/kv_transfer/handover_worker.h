// File: cc/kv_transfer/handover_worker.h
// The other side of HandoverConnector: sends blocks by this engine's segment of shared memory
// (shared_segment.h), and loads them from those of its peers (peer_loads.h), on a thread of its
// own. Engines on other machines fetch from the segment by TCP (segment_server.h), as this engine
// does from theirs (remote_loads.h).
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto worker, HandoverWorker::Create(options, pages));
//   HandoverConnector connector(worker->engine_id(), worker->address());
//
// A send ends when its blocks are in the segment, which may have to wait until peers have taken
// others. A load waits for blocks that its peer has not sent yet, and ends early if they will not
// come, if the peer's process or connection is gone, or if it is abandoned. Neither hinders the
// others. A load whose client names an address that is not listed looks on this machine.
// Thread safety: that of TransferWorker.
#ifndef PAGEMILL_CC_KV_TRANSFER_HANDOVER_WORKER_H_
#define PAGEMILL_CC_KV_TRANSFER_HANDOVER_WORKER_H_

#include <poll.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/connectors/handover.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/peer_loads.h"
#include "cc/kv_transfer/shared_segment.h"
#include "cc/kv_transfer/tcp/remote_loads.h"
#include "cc/kv_transfer/tcp/segment_server.h"
#include "cc/kv_transfer/tcp/wakeup.h"
#include "cc/net/net_address.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

class HandoverWorker final : public kv_cache::TransferWorker {
 public:
  struct Options {
    SharedSegment::Options segment = {};
    // Where engines on other machines fetch blocks; empty: nowhere.
    std::optional<net::NetAddress> listen = {};
    // From where this engine fetches them.
    std::vector<net::NetAddress> peers = {};
    // What all of them know, if there are any.
    std::string secret = {};
    // A message from or to another machine takes no longer.
    int64_t timeout_ms = 10'000;
    int32_t num_step_threads = 0;  // threads that compute steps; 0 = unknown
  };

  // `pages` must outlive the worker. Errors are those of SharedSegment::Create() and
  // net::TcpSocket::Listen(); kResourceExhausted if there are no more file descriptors.
  static StatusOr<std::unique_ptr<HandoverWorker>> Create(const Options& options,
                                                          step::PageStore* pages);
  // Removes the segment; transfers under way have no result.
  ~HandoverWorker() override;

  const std::string& engine_id() const { return segment_->engine_id(); }
  // Where it listens, for clients; empty if it does not.
  kv_cache::HandoverAddress address() const;

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

  HandoverWorker(const Options& options, std::unique_ptr<SharedSegment> segment,
                 std::unique_ptr<SegmentServer> server, step::PageStore* pages);

  // The thread.
  void Work();
  void WaitForEvents(bool moved);
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
  const std::unique_ptr<SegmentServer> server_;  // null if it does not listen
  RemoteLoads remote_loads_;
  std::vector<pollfd> polled_;     // during WaitForEvents()
  uint64_t last_number_ = 0;       // of the sends that were accepted
  std::vector<std::byte> buffer_;  // one page
  std::vector<kv_cache::KvTransferResult> ended_;

  const Wakeup wakeup_;  // after changes of what the mutex guards
  std::mutex mutex_;
  std::condition_variable result_is_there_;
  // Guarded by mutex_.
  std::vector<kv_cache::KvTransfer> started_;
  std::vector<kv_cache::TransferId> abandoned_;
  std::vector<kv_cache::KvTransferResult> results_;
  bool closing_ = false;

  std::thread thread_;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_HANDOVER_WORKER_H_
