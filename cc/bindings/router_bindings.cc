// The router of requests among servers (cc/router/router.h).
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/status_error.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/event_log.h"
#include "cc/router/router.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using kv_cache::BlockHash;
using kv_cache::KvEvent;
using router::Router;

namespace {

// A Router with its number of engines, against which the numbers that callers pass are checked.
class RouterHolder {
 public:
  explicit RouterHolder(const router::RouterOptions& options)
      : num_engines_(options.num_engines), router_(ValueOrThrow(Router::Create(options))) {}

  Router& router() { return *router_; }
  int32_t Checked(int32_t engine) const {
    if (engine < 0 || engine >= num_engines_) throw nb::index_error("there is no such engine");
    return engine;
  }

 private:
  int32_t num_engines_;
  std::unique_ptr<Router> router_;
};

RouterHolder* MakeRouter(std::string policy, int32_t num_engines, int32_t block_size,
                         std::string_view hash_algorithm, int64_t max_prefix_blocks) {
  return new RouterHolder(
      {.policy = std::move(policy),
       .num_engines = num_engines,
       .block_size = block_size,
       .hash_algorithm = ValueOrThrow(kv_cache::ParseHashAlgorithm(hash_algorithm)),
       .max_prefix_blocks = max_prefix_blocks});
}

std::optional<int32_t> Route(RouterHolder& self, std::vector<int32_t> token_ids,
                             std::string cache_salt, std::string_view session) {
  step::Request request;
  request.prompt_token_ids = std::move(token_ids);
  request.cache_salt = std::move(cache_salt);
  return self.router().Route(request, session);
}

KvEvent::Type ToType(std::string_view name) {
  if (name == "stored") return KvEvent::Type::kStored;
  if (name == "removed") return KvEvent::Type::kRemoved;
  if (name == "cleared") return KvEvent::Type::kCleared;
  ThrowIfError(
      InvalidArgument("a KV event is stored, removed or cleared, not '" + std::string(name) + "'"));
  return {};
}

// The inverse of what engine_control_bindings.cc makes of a hash.
BlockHash ToHash(const nb::bytes& bytes) {
  BlockHash hash;
  if (bytes.size() != sizeof(hash.words) && bytes.size() != sizeof(hash.words) / 2) {
    ThrowIfError(
        InvalidArgument("a block's hash has 16 or 32 bytes, not " + std::to_string(bytes.size())));
  }
  std::memcpy(hash.words.data(), bytes.c_str(), bytes.size());
  return hash;
}

void Observe(RouterHolder& self, int32_t engine, std::string_view type,
             const std::vector<nb::bytes>& hashes, uint16_t group, std::string medium,
             int32_t block_size) {
  KvEvent event;
  event.type = ToType(type);
  event.group = kv_cache::GroupId(group);
  event.medium = std::move(medium);
  event.block_size = block_size;
  for (const nb::bytes& hash : hashes) event.hashes.push_back(ToHash(hash));
  self.router().Observe(self.Checked(engine), event);
}

nb::dict Stats(RouterHolder& self) {
  const router::RouterStats& stats = self.router().stats();
  nb::dict dict;
  dict["num_routed"] = stats.num_routed;
  dict["num_prefix_hits"] = stats.num_prefix_hits;
  dict["prefix_tokens"] = stats.prefix_tokens;
  return dict;
}

}  // namespace

void BindRouter(nb::module_& m) {
  const router::RouterOptions defaults;
  nb::class_<RouterHolder>(m, "Router")
      .def(nb::new_(&MakeRouter), nb::kw_only(), nb::arg("policy"), nb::arg("num_engines"),
           nb::arg("block_size") = defaults.block_size, nb::arg("hash_algorithm") = "xxh3-128",
           nb::arg("max_prefix_blocks") = defaults.max_prefix_blocks)
      .def("route", &Route, nb::arg("token_ids") = std::vector<int32_t>(), nb::kw_only(),
           nb::arg("cache_salt") = "", nb::arg("session") = "")
      .def(
          "finish",
          [](RouterHolder& self, int32_t engine) { self.router().Finish(self.Checked(engine)); },
          nb::arg("engine"))
      .def(
          "add_requests",
          [](RouterHolder& self, int32_t engine, int32_t count) {
            self.router().AddRequests(self.Checked(engine), count);
          },
          nb::arg("engine"), nb::arg("count"))
      .def("observe", &Observe, nb::arg("engine"), nb::arg("type"),
           nb::arg("hashes") = std::vector<nb::bytes>(), nb::kw_only(), nb::arg("group") = 0,
           nb::arg("medium") = "pool", nb::arg("block_size") = 0)
      .def(
          "forget",
          [](RouterHolder& self, int32_t engine) { self.router().Forget(self.Checked(engine)); },
          nb::arg("engine"))
      .def(
          "set_available",
          [](RouterHolder& self, int32_t engine, bool available) {
            self.router().SetAvailable(self.Checked(engine), available);
          },
          nb::arg("engine"), nb::arg("available"))
      .def(
          "num_requests",
          [](RouterHolder& self, int32_t engine) {
            return self.router().load(self.Checked(engine)).num_requests;
          },
          nb::arg("engine"))
      .def_prop_ro("uses_prefixes",
                   [](RouterHolder& self) { return self.router().uses_prefixes(); })
      .def("stats", &Stats);
}

}  // namespace pagemill::bindings
