// File: cc/kv_cache/connectors/handover.h
// A KvConnector that hands the KV of a prompt from one engine to another, on the same machine or by
// the network, so that one computes prompts and the other generates. Its other side is
// HandoverWorker (handover_worker.h).
//
//   HandoverConnector connector(worker->engine_id(), {"10.0.0.7", "7000"});
//   scheduler->SetConnector(&connector);
//
// The client submits the prompt to the first engine with {do_remote_decode: "true"} and few
// max_tokens, gets {do_remote_prefill: "true", remote_engine_id, remote_request_id} with the last
// output, and submits the prompt to the second engine with these. An engine that listens adds
// {remote_host, remote_port}. Names of parameters are those of vLLM's connectors, so that its
// proxies work. The address is the client's word: the worker decides whether it connects there.
//
// The first engine holds the blocks of a finished request until they are in its shared memory, or
// until the transfer is abandoned. The second loads whatever full blocks of the prompt it does not
// have; if they do not come, because parameters are wrong or the first engine is gone, it computes
// them.
//
// After Reset() nothing is found that this engine sent before; what others sent is theirs to reset.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_CONNECTORS_HANDOVER_H_
#define PAGEMILL_CC_KV_CACHE_CONNECTORS_HANDOVER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/transfer.h"
#include "cc/step/request.h"

namespace pagemill::kv_cache {

inline constexpr char kHandoverMedium[] = "handover";

// What an engine is called in parameters and shared memory: 32 lowercase hexadecimal digits.
bool IsEngineId(std::string_view text);

// Where engines on other machines fetch blocks; both are empty if they cannot.
struct HandoverAddress {
  std::string host = {};
  std::string port = {};
};

class HandoverConnector final : public KvConnector {
 public:
  // `engine_id` and `address` of the worker.
  explicit HandoverConnector(std::string engine_id, HandoverAddress address = {})
      : engine_id_(std::move(engine_id)), address_(std::move(address)) {}

  ConnectorMatch Lookup(const step::Request& request, const PrefixQuery& query,
                        std::vector<KvTransfer>* transfers) override;
  void Transfer(KvTransfer::Direction direction, std::span<const BlockContent> blocks,
                std::vector<KvTransfer>* transfers) override;
  step::KvTransferParams RequestFinished(const step::Request& request,
                                         std::span<const BlockContent> blocks,
                                         std::vector<KvTransfer>* transfers) override;
  void Finish(const KvTransfer& transfer, const KvTransferResult& result) override;
  bool Reset(std::vector<KvTransfer>* transfers) override;
  KvConnectorStats stats() const override { return stats_; }

 private:
  const std::string engine_id_;
  const HandoverAddress address_;
  uint64_t num_handovers_ = 0;
  KvConnectorStats stats_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_CONNECTORS_HANDOVER_H_
