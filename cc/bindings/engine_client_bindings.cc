// Clients of an engine, and outputs as they travel to another process.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/collectable.h"
#include "cc/bindings/engine_client_holder.h"
#include "cc/bindings/engine_holder.h"
#include "cc/bindings/fields.h"
#include "cc/bindings/status_error.h"
#include "cc/engine/output_codec.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using engine::RequestOutput;
using step::RequestId;

EngineClientHolder::EngineClientHolder(nb::object engine) : engine_(std::move(engine)) {
  client_ = ValueOrThrow(nb::cast<EngineHolder&>(engine_).engine().NewClient());
}

engine::EngineClient& EngineClientHolder::client() {
  if (client_ == nullptr) {
    ThrowIfError(FailedPrecondition("this client is closed; Engine.new_client() makes another"));
  }
  return *client_;
}

void EngineClientHolder::Close() {
  client_.reset();
  engine_ = nb::none();
}

int EngineClientHolder::Visit(visitproc visit, void* arg) {
  Py_VISIT(engine_.ptr());
  return 0;
}

namespace {

using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

void BindOutputs(nb::module_& m) {
  nb::class_<RequestOutput> output(m, "RequestOutput");
  BindFields(output);
  m.def(
      "outputs_from_wire",
      [](const nb::bytes& bytes) {
        return ValueOrThrow(engine::DecodeOutputs(std::string_view(bytes.c_str(), bytes.size())));
      },
      nb::arg("wire"));
  m.def("output_schema", &engine::OutputSchema);
}

}  // namespace

void BindEngineClient(nb::module_& m) {
  using Holder = EngineClientHolder;
  BindOutputs(m);
  nb::class_<Holder>(m, "EngineClient", nb::type_slots(CollectableSlots<Holder>::kSlots))
      .def(
          "submit",
          [](Holder& self, const step::Request& request) {
            step::Request copy = request;
            nb::gil_scoped_release release;
            ThrowIfError(self.client().Submit(std::move(copy)));
          },
          nb::arg("request"))
      .def(
          "check_room", [](Holder& self) { ThrowIfError(self.client().CheckRoom()); }, WithoutGil())
      .def(
          "abort", [](Holder& self, uint64_t id) { self.client().Abort(RequestId(id)); },
          nb::arg("request_id"), WithoutGil())
      .def(
          "release", [](Holder& self, uint64_t id) { self.client().Release(RequestId(id)); },
          nb::arg("request_id"), WithoutGil())
      .def(
          "extend",
          [](Holder& self, uint64_t id, scheduler::InputChunk chunk) {
            nb::gil_scoped_release release;
            ThrowIfError(self.client().Extend(RequestId(id), std::move(chunk)));
          },
          nb::arg("request_id"), nb::arg("chunk"))
      .def(
          "poll", [](Holder& self) { return self.client().Poll(); }, WithoutGil())
      .def(
          "wait", [](Holder& self, double timeout_s) { return self.client().Wait(timeout_s); },
          nb::arg("timeout_s"), WithoutGil())
      .def("poll_wire",
           [](Holder& self) {
             std::string bytes;
             {
               nb::gil_scoped_release release;
               bytes = engine::EncodeOutputs(self.client().Poll());
             }
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def("output_fd", [](Holder& self) { return self.client().output_fd(); })
      .def("close", [](Holder& self) { self.Close(); });
}

}  // namespace pagemill::bindings
