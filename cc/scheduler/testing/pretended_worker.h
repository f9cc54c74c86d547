// File: cc/scheduler/testing/pretended_worker.h
// A worker that copies the pages of a store to media in memory, for simulations: it fails, dawdles,
// answers out of order and twice, and loses files.
//
//   PretendedWorker worker(&model, &random, /*percent_failing=*/10);
//   scheduler.TakeTransfers(&taken);  worker.Start(std::move(taken));
//   worker.Move(&results);  scheduler.FinishTransfers(results);
//
// Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_PRETENDED_WORKER_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_PRETENDED_WORKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/kv_cache/transfer.h"
#include "cc/step/page_store.h"

namespace pagemill::scheduler {

class PretendedWorker {
 public:
  PretendedWorker(step::PageStore* pages, std::mt19937* random, int percent_failing)
      : pages_(pages), random_(random), percent_failing_(percent_failing) {}

  void Start(std::vector<kv_cache::KvTransfer> transfers);
  // Copies some that were not, and answers some that were copied, now and then twice.
  void Move(std::vector<kv_cache::KvTransferResult>* results);
  // Some transfer that was not answered; empty if there is none.
  std::optional<kv_cache::TransferId> RandomTransfer();
  // Blocks of requests that finished, which are held until they are sent.
  int32_t NumSending() const;
  // Files may vanish at any time.
  void LoseSomeFile();

 private:
  using Page = std::vector<std::byte>;
  struct Copying {
    kv_cache::KvTransfer transfer;
    std::optional<kv_cache::KvTransferResult> result;  // once the bytes are copied
  };

  kv_cache::KvTransferResult Run(const kv_cache::KvTransfer& transfer, bool fails);
  bool Copy(const kv_cache::KvTransfer& transfer, size_t i);
  bool Fails();
  void RunBefore(size_t which);  // all transfers that were started before

  step::PageStore* const pages_;
  std::mt19937* const random_;
  const int percent_failing_;
  std::vector<Copying> copying_;
  // What real workers keep in memory and in files. A hash may have a page per group.
  std::map<std::pair<std::string, int64_t>, Page> slots_;
  std::map<std::pair<std::array<uint64_t, 4>, uint16_t>, Page> files_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_PRETENDED_WORKER_H_
