// Options of KV tiers and connectors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/status_error.h"
#include "cc/engine/kv_tier_options.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using engine::KvTierOptions;

namespace {

// What Python says, or that it raised.
StatusOr<std::string> Call(const std::function<std::string()>& fingerprint) {
  try {
    return fingerprint();
  } catch (const std::exception& e) {  // nb::python_error too: its text is Python's traceback
    return Unavailable(std::string("the KV has no name without the weights of all ranks: ") +
                       e.what());
  }
}

}  // namespace

void BindKvTierOptions(nb::module_& m) {
  const KvTierOptions defaults;
  nb::class_<KvTierOptions>(m, "KvTierOptions")
      .def(
          "__init__",
          [](KvTierOptions* self, int64_t host_bytes, std::string disk_path, int64_t disk_bytes,
             std::string policy, std::string connector_folder, int64_t connector_bytes,
             int64_t shared_memory_bytes, std::string transfer_listen,
             std::vector<std::string> transfer_peers, std::string transfer_secret,
             int64_t transfer_timeout_ms, int32_t num_step_threads,
             std::function<std::string()> fingerprint) {
            KvTierOptions options;
            options.host_bytes = host_bytes;
            options.disk_path = std::move(disk_path);
            options.disk_bytes = disk_bytes;
            options.policy = std::move(policy);
            options.connector_folder = std::move(connector_folder);
            options.connector_bytes = connector_bytes;
            options.shared_memory_bytes = shared_memory_bytes;
            options.transfer_listen = std::move(transfer_listen);
            options.transfer_peers = std::move(transfer_peers);
            options.transfer_secret = std::move(transfer_secret);
            options.transfer_timeout_ms = transfer_timeout_ms;
            options.num_step_threads = num_step_threads;
            if (fingerprint) {
              options.fingerprint = [call = std::move(fingerprint)] { return Call(call); };
            }
            ThrowIfError(options.Validate());
            new (self) KvTierOptions(std::move(options));
          },
          nb::kw_only(), nb::arg("host_bytes") = defaults.host_bytes, nb::arg("disk_path") = "",
          nb::arg("disk_bytes") = defaults.disk_bytes, nb::arg("policy") = defaults.policy,
          nb::arg("connector_folder") = "", nb::arg("connector_bytes") = defaults.connector_bytes,
          nb::arg("shared_memory_bytes") = defaults.shared_memory_bytes,
          nb::arg("transfer_listen") = "", nb::arg("transfer_peers") = std::vector<std::string>(),
          nb::arg("transfer_secret") = "",
          nb::arg("transfer_timeout_ms") = defaults.transfer_timeout_ms,
          nb::arg("num_step_threads") = defaults.num_step_threads,
          nb::arg("fingerprint").none() = nb::none());
}

}  // namespace pagemill::bindings
