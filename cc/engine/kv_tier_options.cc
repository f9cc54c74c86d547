#include "cc/engine/kv_tier_options.h"

#include "cc/kv_cache/tiers/replacement.h"

namespace pagemill::engine {
namespace {

Status CheckAtLeast(const char* field, int64_t value, int64_t least, const char* flag) {
  if (value >= least) return OkStatus();
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         ", it must be at least " + std::to_string(least) + " (" + flag + ")");
}

}  // namespace

Status KvTierOptions::Validate() const {
  PM_RETURN_IF_ERROR(CheckAtLeast("host_bytes", host_bytes, 0, "--kv-offloading-bytes"));
  PM_RETURN_IF_ERROR(CheckAtLeast("disk_bytes", disk_bytes, 0, "--kv-offloading-disk-bytes"));
  PM_RETURN_IF_ERROR(CheckAtLeast("connector_bytes", connector_bytes, 1, "--kv-connector-bytes"));
  PM_RETURN_IF_ERROR(
      CheckAtLeast("transfer_timeout_ms", transfer_timeout_ms, 1, "--kv-transfer-timeout-ms"));
  if (disk_path.empty() != (disk_bytes == 0)) {
    return InvalidArgument(
        "a disk tier has both a path and a size (--kv-offloading-disk-path, "
        "--kv-offloading-disk-bytes)");
  }
  if ((connector == nullptr) != (worker == nullptr)) {
    return InvalidArgument("a connector of the host's own needs a worker, and a worker one");
  }
  const bool tiers = host_bytes > 0 || !disk_path.empty();
  if (tiers + !connector_folder.empty() + (connector != nullptr) > 1) {
    return InvalidArgument(
        "tiers (--kv-offloading-bytes, --kv-offloading-disk-path) and a connector "
        "(--kv-connector-path) exclude each other");
  }
  if (!connector_folder.empty() && fingerprint.empty()) {
    return InvalidArgument(
        "kv_tiers.fingerprint is empty: block files in a folder (--kv-connector-path) must say "
        "which model they are of");
  }
  return kv_cache::MakeReplacement(policy, 1).status();
}

}  // namespace pagemill::engine
