// File: cc/kv_transfer/handover_test_engine.h
// What an engine is to handovers, for tests: a worker and pages. Blocks are numbered by their place
// in the sequence.
//
//   TestEngine sender({.num_slots = 8}), receiver({.num_slots = 2});
//   sender.Send(/*number=*/1, 0, 5);
//   receiver.Load(/*id=*/7, sender.Handover(1), 0, 5);
//   EXPECT_EQ(receiver.Wait().status, OkStatus());
#ifndef PAGEMILL_CC_KV_TRANSFER_HANDOVER_TEST_ENGINE_H_
#define PAGEMILL_CC_KV_TRANSFER_HANDOVER_TEST_ENGINE_H_

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/kv_transfer/handover_worker.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {

inline constexpr size_t kTestPageBytes = 64;

// Pages in one piece of memory, which it offers or not.
class ArenaPages final : public step::PageStore {
 public:
  explicit ArenaPages(bool offers) : offers_(offers), bytes_(64 * kTestPageBytes) {}
  size_t page_bytes(kv_cache::GroupId) const override { return kTestPageBytes; }
  Status Read(kv_cache::GroupId, step::BlockId block, std::span<std::byte> to) const override {
    EXPECT_FALSE(offers_) << "the region needs no copy";
    std::memcpy(to.data(), At(block), to.size());
    return OkStatus();
  }
  Status Write(kv_cache::GroupId, step::BlockId block, std::span<const std::byte> from) override {
    std::memcpy(At(block), from.data(), from.size());
    return OkStatus();
  }
  std::vector<step::PageRegion> regions() const override {
    if (!offers_) return {};
    return {{std::span(bytes_), kTestPageBytes}};
  }
  std::byte* At(step::BlockId block) const { return &bytes_[block.value() * kTestPageBytes]; }

 private:
  const bool offers_;
  mutable std::vector<std::byte> bytes_;
};

struct TestEngine {
  struct Options {
    int64_t num_slots = 8;
    int64_t keep_ms = 60'000;
    bool offers = true;
    uint64_t fingerprint = 1;
    bool listens = false;
    std::vector<net::NetAddress> peers = {};
    std::string secret = "what both engines know";
    int64_t timeout_ms = 10'000;
  };

  explicit TestEngine(const Options& options) : pages(options.offers) {
    HandoverWorker::Options worker_options;
    worker_options.segment = {
        .format = {.fingerprint = {.low = options.fingerprint, .high = 2},
                   .page_bytes = kTestPageBytes},
        .bytes = SegmentBytes(static_cast<size_t>(options.num_slots), kTestPageBytes),
        .keep_ms = options.keep_ms};
    if (options.listens) worker_options.listen = *net::NetAddress::Parse("127.0.0.1:0");
    worker_options.peers = options.peers;
    worker_options.secret = options.secret;
    worker_options.timeout_ms = options.timeout_ms;
    auto made = HandoverWorker::Create(worker_options, &pages);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    worker = std::move(*made);
  }

  // Where it listens.
  net::NetAddress address() const {
    return *net::NetAddress::Make(worker->address().host, worker->address().port);
  }
  // What its connector would tell another engine of a handover.
  kv_cache::Handover Handover(uint64_t number) const {
    return {.peer = worker->engine_id(),
            .number = number,
            .host = worker->address().host,
            .port = worker->address().port};
  }
  // Blocks [begin, end) of a sequence, in pages from `page` on.
  static kv_cache::KvTransfer Make(kv_cache::KvTransfer::Direction direction, uint64_t id,
                                   int begin, int end, int page) {
    kv_cache::KvTransfer transfer{
        .id = kv_cache::TransferId(id), .direction = direction, .medium = "handover"};
    for (int i = begin; i < end; ++i, ++page) {
      transfer.blocks.push_back(
          {.hash = {}, .group = kv_cache::GroupId(0), .block = step::BlockId(page)});
      transfer.blocks.back().hash.words[1] = static_cast<uint64_t>(i) + 1;
    }
    return transfer;
  }
  // Fills the pages of the blocks and sends them.
  void Send(uint64_t number, int begin, int end, int page = 1) {
    kv_cache::KvTransfer send =
        Make(kv_cache::KvTransfer::Direction::kSend, number, begin, end, page);
    send.handover.number = number;
    for (const kv_cache::BlockContent& block : send.blocks) {
      std::memset(pages.At(block.block), static_cast<int>(block.hash.words[1]), kTestPageBytes);
    }
    worker->Start(send);
  }
  void Load(uint64_t id, kv_cache::Handover handover, int begin, int end, int page = 1) {
    kv_cache::KvTransfer load = Make(kv_cache::KvTransfer::Direction::kLoad, id, begin, end, page);
    load.handover = std::move(handover);
    worker->Start(load);
  }
  kv_cache::KvTransferResult Wait() {
    std::vector<kv_cache::KvTransferResult> results;
    for (int i = 0; i < 30 && results.empty(); ++i) {
      worker->Wait(1'000'000);
      worker->Poll(&results);
    }
    EXPECT_EQ(results.size(), 1u);
    return results.empty() ? kv_cache::KvTransferResult() : results[0];
  }
  bool HasResult() {
    worker->Wait(30'000);
    std::vector<kv_cache::KvTransferResult> results;
    worker->Poll(&results);
    return !results.empty();
  }
  int Value(int page) const { return static_cast<int>(*pages.At(step::BlockId(page))); }

  ArenaPages pages;
  std::unique_ptr<HandoverWorker> worker;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_HANDOVER_TEST_ENGINE_H_
