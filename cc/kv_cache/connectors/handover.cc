#include "cc/kv_cache/connectors/handover.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace pagemill::kv_cache {
namespace {

using Direction = KvTransfer::Direction;

constexpr char kSends[] = "do_remote_decode";
constexpr char kLoads[] = "do_remote_prefill";
constexpr char kEngine[] = "remote_engine_id";
constexpr char kNumber[] = "remote_request_id";
constexpr char kHost[] = "remote_host";
constexpr char kPort[] = "remote_port";
constexpr char kTrue[] = "true";

std::string_view Find(const step::KvTransferParams& params, const char* key) {
  const auto found = params.find(key);
  return found == params.end() ? std::string_view() : std::string_view(found->second);
}

// What the client says of where the KV is; empty if it makes no sense.
std::optional<Handover> ParseHandover(const step::KvTransferParams& params) {
  if (Find(params, kLoads) != kTrue) return std::nullopt;
  Handover handover;
  handover.peer = Find(params, kEngine);
  const std::string_view number = Find(params, kNumber);
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, handover.number);
  if (!IsEngineId(handover.peer) || parsed.ec != std::errc() || parsed.ptr != end) {
    return std::nullopt;
  }
  handover.host = Find(params, kHost);
  handover.port = Find(params, kPort);
  return handover;
}

// What the peer has is not known here. It may well have everything.
class Everything final : public ContentFinder {
 public:
  bool Has(const BlockHash&, GroupId) const override { return true; }
};

}  // namespace

bool IsEngineId(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

ConnectorMatch HandoverConnector::Lookup(const step::Request& request, const PrefixQuery& query,
                                         std::vector<KvTransfer>*) {
  std::optional<Handover> handover = ParseHandover(request.kv_transfer_params);
  if (!handover) return {};
  ++stats_.num_kv_lookups;
  return {.num_blocks = query.LongestPrefix(Everything()), .handover = *std::move(handover)};
}

void HandoverConnector::Transfer(Direction direction, std::span<const BlockContent> blocks,
                                 std::vector<KvTransfer>* transfers) {
  if (direction != Direction::kLoad) return;
  KvTransfer& load = transfers->emplace_back();
  load.medium = kHandoverMedium;
  load.blocks.assign(blocks.begin(), blocks.end());
}

step::KvTransferParams HandoverConnector::RequestFinished(const step::Request& request,
                                                          std::span<const BlockContent> blocks,
                                                          std::vector<KvTransfer>* transfers) {
  if (blocks.empty() || Find(request.kv_transfer_params, kSends) != kTrue) return {};
  KvTransfer& send = transfers->emplace_back();
  send.direction = Direction::kSend;
  send.medium = kHandoverMedium;
  send.blocks.assign(blocks.begin(), blocks.end());
  send.handover.number = ++num_handovers_;
  step::KvTransferParams params = {
      {kLoads, kTrue}, {kEngine, engine_id_}, {kNumber, std::to_string(num_handovers_)}};
  if (!address_.host.empty()) {
    params.emplace(kHost, address_.host);
    params.emplace(kPort, address_.port);
  }
  return params;
}

void HandoverConnector::Finish(const KvTransfer& transfer, const KvTransferResult& result) {
  stats_.num_failed_kv_transfers += !result.status.ok();
  const auto done = static_cast<uint64_t>(std::max(0, result.num_blocks_done));
  if (transfer.direction == Direction::kLoad) stats_.kv_blocks_loaded += done;
  if (transfer.direction != Direction::kSend) return;
  stats_.kv_blocks_stored += done;
  stats_.kv_blocks_dropped += transfer.blocks.size() - done;
}

bool HandoverConnector::Reset(std::vector<KvTransfer>* transfers) {
  KvTransfer& forget = transfers->emplace_back();
  forget.direction = Direction::kForget;
  forget.medium = kHandoverMedium;
  return true;
}

}  // namespace pagemill::kv_cache
