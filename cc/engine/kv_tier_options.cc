#include "cc/engine/kv_tier_options.h"

#include "cc/kv_cache/tiers/replacement.h"
#include "cc/net/net_address.h"
#include "cc/net/secret.h"

namespace pagemill::engine {
namespace {

// Range of a size or a time: as wide as the flag's own check, which keeps sums and
// nanoseconds within 64 bits.
Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high, const char* flag) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         ", it must be from " + std::to_string(low) + " to " +
                         std::to_string(high) + " (" + flag + ")");
}

Status CheckAddress(const char* flag, const std::string& text, bool listens) {
  StatusOr<net::NetAddress> address = net::NetAddress::Parse(text);
  if (!address.ok()) return InvalidArgument(std::string(flag) + ": " + address.status().message());
  if (address->is_wildcard()) {
    return InvalidArgument(std::string(flag) + " " + text +
                           ": peers connect to one address of this machine; name that one");
  }
  if (!listens && address->port() == 0) {
    return InvalidArgument(std::string(flag) + " " + text + ": the port of a peer is not 0");
  }
  return OkStatus();
}

Status CheckNetwork(const KvTierOptions& options) {
  const bool listens = !options.transfer_listen.empty();
  if (!listens && options.transfer_peers.empty()) return OkStatus();
  if (listens) {
    PAGEMILL_RETURN_IF_ERROR(
        CheckAddress("--kv-transfer-listen", options.transfer_listen, /*listens=*/true));
  }
  for (const std::string& peer : options.transfer_peers) {
    PAGEMILL_RETURN_IF_ERROR(CheckAddress("--kv-transfer-peers", peer, /*listens=*/false));
  }
  if (options.shared_memory_bytes == 0) {
    return InvalidArgument(
        "--kv-transfer-listen and --kv-transfer-peers need --kv-shared-memory-bytes, the room for "
        "KV that waits to be fetched");
  }
  if (options.transfer_secret.size() < net::kMinSecretBytes) {
    return InvalidArgument(
        "--kv-transfer-listen and --kv-transfer-peers need a secret of at least " +
        std::to_string(net::kMinSecretBytes) +
        " bytes, the same on all machines (--kv-transfer-secret-file)");
  }
  return OkStatus();
}

}  // namespace

Status KvTierOptions::Validate() const {
  constexpr int64_t kMostBytes = int64_t{1} << 62;
  PAGEMILL_RETURN_IF_ERROR(
      CheckRange("host_bytes", host_bytes, 0, kMostBytes, "--kv-offloading-bytes"));
  PAGEMILL_RETURN_IF_ERROR(
      CheckRange("disk_bytes", disk_bytes, 0, kMostBytes, "--kv-offloading-disk-bytes"));
  PAGEMILL_RETURN_IF_ERROR(
      CheckRange("connector_bytes", connector_bytes, 1, kMostBytes, "--kv-connector-bytes"));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("shared_memory_bytes", shared_memory_bytes, 0, kMostBytes,
                                      "--kv-shared-memory-bytes"));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("transfer_timeout_ms", transfer_timeout_ms, 1, INT32_MAX,
                                      "--kv-transfer-timeout-ms"));
  PAGEMILL_RETURN_IF_ERROR(CheckNetwork(*this));
  if (disk_path.empty() != (disk_bytes == 0)) {
    return InvalidArgument(
        "a disk tier has both a path and a size (--kv-offloading-disk-path, "
        "--kv-offloading-disk-bytes)");
  }
  if ((connector == nullptr) != (worker == nullptr)) {
    return InvalidArgument("a connector of the host's own needs a worker, and a worker one");
  }
  const bool tiers = host_bytes > 0 || !disk_path.empty();
  const bool shared = shared_memory_bytes > 0;
  if (tiers + !connector_folder.empty() + shared + (connector != nullptr) > 1) {
    return InvalidArgument(
        "tiers (--kv-offloading-bytes, --kv-offloading-disk-path) and connectors "
        "(--kv-connector-path, --kv-shared-memory-bytes) exclude each other");
  }
  if ((!connector_folder.empty() || shared) && fingerprint == nullptr) {
    return InvalidArgument(std::string("kv_tiers.fingerprint is missing: KV blocks for other "
                                       "engines (") +
                           names_weights() + ") must say which model they are of");
  }
  return kv_cache::MakeReplacement(policy, 1).status();
}

}  // namespace pagemill::engine
