#include "cc/bindings/engine_control_bindings.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/bindings/status_error.h"
#include "cc/engine/engine.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using kv_cache::KvEvent;
using scheduler::PauseMode;
using step::RequestId;

namespace {

using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

PauseMode ToPauseMode(std::string_view name) {
  if (name == "keep") return PauseMode::kKeep;
  if (name == "wait") return PauseMode::kWait;
  if (name == "abort") return PauseMode::kAbort;
  ThrowIfError(
      InvalidArgument("mode is '" + std::string(name) + "', it must be one of keep, wait, abort"));
  return {};
}

step::Request Like(std::vector<int32_t> token_ids, std::string cache_salt) {
  step::Request like;
  like.prompt_token_ids = std::move(token_ids);
  like.cache_salt = std::move(cache_salt);
  return like;
}

nb::tuple PinPrefix(EngineHolder& self, std::vector<int32_t> token_ids, std::string cache_salt) {
  kv_cache::PinnedPrefix pinned;
  {
    nb::gil_scoped_release release;
    pinned =
        ValueOrThrow(self.engine().PinPrefix(Like(std::move(token_ids), std::move(cache_salt))));
  }
  return nb::make_tuple(pinned.id.value(), pinned.num_tokens);
}

// The words that the algorithm fills (block_hash.h), little-endian as they lie; none if it is
// empty.
nb::bytes Bytes(const kv_cache::BlockHash& hash) {
  size_t words = hash.words.size();
  while (words > 0 && hash.words[words - 1] == 0 && hash.words[words - 2] == 0) {
    words -= 2;
  }
  return nb::bytes(hash.words.data(), words * sizeof(hash.words[0]));
}

nb::dict ToDict(const KvEvent& event) {
  constexpr std::string_view kTypes[] = {"stored", "removed", "cleared"};
  nb::dict dict;
  nb::list hashes, extra_keys;
  for (const kv_cache::BlockHash& hash : event.hashes) hashes.append(Bytes(hash));
  for (const std::string& key : event.extra_keys) {
    extra_keys.append(nb::bytes(key.data(), key.size()));
  }
  const std::string_view type = kTypes[static_cast<size_t>(event.type)];
  dict["sequence"] = event.sequence;
  dict["type"] = nb::str(type.data(), type.size());
  dict["group"] = event.group.value();
  dict["medium"] = event.medium;
  dict["hashes"] = hashes;
  dict["parent"] = Bytes(event.parent);
  dict["block_size"] = event.block_size;
  dict["token_ids"] = event.token_ids;
  dict["extra_keys"] = extra_keys;
  return dict;
}

nb::dict KvEvents(EngineHolder& self, uint64_t sequence, size_t max_events) {
  engine::KvEventBatch batch;
  {
    nb::gil_scoped_release release;
    batch = ValueOrThrow(self.engine().KvEvents(sequence, max_events));
  }
  nb::list events;
  for (const KvEvent& event : batch.events) events.append(ToDict(event));
  nb::dict dict;
  dict["log_id"] = batch.log_id;
  dict["events"] = events;
  dict["next"] = batch.next;
  dict["dropped"] = batch.dropped;
  return dict;
}

nb::dict StopProfile(EngineHolder& self) {
  EngineProfile::Result result;
  {
    nb::gil_scoped_release release;
    result = ValueOrThrow(self.profile().Stop());
  }
  nb::dict dict;
  dict["path"] = result.path;
  dict["num_events"] = result.num_events;
  dict["num_steps"] = result.num_steps;
  dict["complete"] = result.complete;
  return dict;
}

void BindRequestControl(nb::class_<EngineHolder>& engine) {
  engine
      .def(
          "release", [](EngineHolder& self, uint64_t id) { self.engine().Release(RequestId(id)); },
          nb::arg("request_id"), WithoutGil())
      .def(
          "extend",
          [](EngineHolder& self, uint64_t id, scheduler::InputChunk chunk) {
            nb::gil_scoped_release release;
            ThrowIfError(self.engine().Extend(RequestId(id), std::move(chunk)));
          },
          nb::arg("request_id"), nb::arg("chunk"))
      .def("new_adapter_id",
           [](EngineHolder& self) { return self.engine().NewAdapterId().value(); })
      .def(
          "count_adapters",
          [](EngineHolder& self, uint64_t loaded, uint64_t evicted) {
            self.engine().CountAdapters(loaded, evicted);
          },
          nb::kw_only(), nb::arg("loaded") = 0, nb::arg("evicted") = 0, WithoutGil())
      .def("pin_prefix", &PinPrefix, nb::arg("token_ids"), nb::kw_only(),
           nb::arg("cache_salt") = "")
      .def(
          "unpin_prefix",
          [](EngineHolder& self, uint64_t id) {
            return self.engine().UnpinPrefix(kv_cache::PinId(id));
          },
          nb::arg("pin_id"), WithoutGil())
      .def("kv_events", &KvEvents, nb::arg("sequence") = 1,
           nb::arg("max_events") = std::numeric_limits<size_t>::max());
}

}  // namespace

void BindEngineControl(nb::class_<EngineHolder>& engine) {
  BindRequestControl(engine);
  engine
      .def(
          "pause",
          [](EngineHolder& self, std::string_view mode) {
            const PauseMode made = ToPauseMode(mode);
            nb::gil_scoped_release release;
            self.engine().Pause(made);
          },
          nb::arg("mode") = "keep")
      .def(
          "wait_paused",
          [](EngineHolder& self, double timeout_s) { return self.engine().WaitPaused(timeout_s); },
          nb::arg("timeout_s"), WithoutGil())
      .def(
          "resume", [](EngineHolder& self) { self.engine().Resume(); }, WithoutGil())
      .def(
          "sleep",
          [](EngineHolder& self, bool keep_kv, double timeout_s) {
            const auto kv = keep_kv ? engine::KvMemory::kKeep : engine::KvMemory::kFree;
            ThrowIfError(self.engine().Sleep(kv, timeout_s));
          },
          nb::kw_only(), nb::arg("keep_kv") = false, nb::arg("timeout_s") = 60.0, WithoutGil())
      .def(
          "wake",
          [](EngineHolder& self, double timeout_s) { ThrowIfError(self.engine().Wake(timeout_s)); },
          nb::kw_only(), nb::arg("timeout_s") = 60.0, WithoutGil())
      .def(
          "update_weights",
          [](EngineHolder& self, const engine::WeightSources& programs, double timeout_s, bool over,
             const std::optional<std::string>& version) {
            const auto where = over ? engine::NewWeights::kOver : engine::NewWeights::kBeside;
            ThrowIfError(self.engine().UpdateWeights(programs, timeout_s, where, version));
          },
          nb::arg("programs"), nb::kw_only(), nb::arg("timeout_s") = 60.0, nb::arg("over") = false,
          nb::arg("version") = nb::none(), WithoutGil())
      .def(
          "set_weight_version",
          [](EngineHolder& self, const std::string& version, double timeout_s) {
            ThrowIfError(self.engine().SetWeightVersion(version, timeout_s));
          },
          nb::arg("version"), nb::kw_only(), nb::arg("timeout_s") = 60.0, WithoutGil())
      .def(
          "start_profile",
          [](EngineHolder& self, std::string path, int64_t max_steps, int64_t max_seconds) {
            ThrowIfError(self.profile().Start(
                {.max_steps = max_steps, .max_seconds = max_seconds}, std::move(path)));
          },
          nb::arg("path"), nb::kw_only(), nb::arg("max_steps") = 0, nb::arg("max_seconds") = 60,
          WithoutGil())
      .def("stop_profile", &StopProfile)
      .def(
          "is_sleeping", [](EngineHolder& self) { return self.engine().stats().asleep; },
          WithoutGil())
      .def(
          "reset_prefix_cache",
          [](EngineHolder& self, bool preempt_running) {
            return self.engine().ResetPrefixCache(preempt_running);
          },
          nb::kw_only(), nb::arg("preempt_running") = false, WithoutGil())
      .def(
          "reset_encoder_cache",
          [](EngineHolder& self) { ThrowIfError(self.engine().ResetEncoderCache()); }, WithoutGil());
}

}  // namespace pagemill::bindings
