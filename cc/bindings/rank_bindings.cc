// Ranks of a model that several processes run: joining them, and following rank 0.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/device_executor_holder.h"
#include "cc/bindings/rank_cpus.h"
#include "cc/bindings/set_adapter.h"
#include "cc/bindings/status_error.h"
#include "cc/comm/shared_memory_world.h"
#include "cc/comm/tcp/node_options.h"
#include "cc/comm/tcp/tcp_world.h"
#include "cc/comm/world.h"
#include "cc/engine/runner_control.h"
#include "cc/net/net_address.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/executor.h"
#include "cc/program/native_executor.h"
#include "cc/runner/adapters/adapter_store.h"
#include "cc/runner/control/device_control.h"
#include "cc/runner/control/program_control.h"
#include "cc/runner/ranks/page_segment.h"
#include "cc/runner/ranks/rank_pages.h"
#include "cc/runner/ranks/rank_steps.h"
#include "cc/runner/ranks/stage_steps.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using comm::SharedMemoryWorld;
using comm::SharedSegment;
using comm::TcpWorld;
using comm::World;
using program::NativeExecutor;

namespace {

std::shared_ptr<World> Join(std::shared_ptr<SharedSegment> segment, int32_t rank, int32_t spin_us) {
  return ValueOrThrow(SharedMemoryWorld::Join(std::move(segment), rank, {.spin_us = spin_us}));
}

Digest256 DigestOf(const nb::bytes& bytes) {
  Digest256 digest;
  if (bytes.size() != digest.size()) {
    ThrowIfError(InvalidArgument("a digest has " + std::to_string(digest.size()) + " bytes"));
  }
  std::memcpy(digest.data(), bytes.c_str(), digest.size());
  return digest;
}

// `segment` has the ranks of this node; null if they share no memory.
std::shared_ptr<TcpWorld> JoinNodes(int32_t rank, std::shared_ptr<SharedSegment> segment,
                                    const std::string& master, const std::string& secret,
                                    int32_t tensor, int32_t pipeline, int32_t num_nodes,
                                    const std::string& version, const nb::bytes& model,
                                    const nb::bytes& options, int64_t number) {
  const comm::NodeOptions nodes = {.master = ValueOrThrow(net::NetAddress::Parse(master)),
                                   .secret = secret,
                                   .topology = {.pipeline = pipeline, .tensor = tensor},
                                   .num_nodes = num_nodes,
                                   .version = version,
                                   .model = DigestOf(model),
                                   .options = DigestOf(options),
                                   .number = number};
  ThrowIfError(nodes.Validate());
  std::shared_ptr<SharedMemoryWorld> local;
  if (segment != nullptr) {
    local = ValueOrThrow(SharedMemoryWorld::Join(std::move(segment), nodes.local(rank).rank));
  }
  return ValueOrThrow(TcpWorld::Join(nodes, rank, std::move(local)));
}

// `adapters`, `control` and `pages` are null if rank 0 has none.
void FollowSteps(program::Executor& executor, comm::Group* group, const runner::StepBounds& bounds,
                 runner::AdapterStore* adapters, SetAdapter set, engine::RunnerControl* control,
                 runner::PageServer* pages) {
  if (group == nullptr) ThrowIfError(InvalidArgument("this rank is alone: no rank leads it"));
  runner::FollowedAdapters followed;
  if (adapters != nullptr) {
    followed.set = [set = std::move(set), adapters](int32_t slot, step::AdapterId id) {
      if (id == step::kNoAdapter) return set(slot, nullptr);
      const std::optional<runner::AdapterParts> parts = adapters->Find(id);
      if (!parts) return Internal("an adapter of rank 0 is not on this rank");
      return set(slot, parts->at(0));  // a rank runs the model's program alone
    };
    followed.forget = [adapters](step::AdapterId id) { adapters->Remove(id); };
  }
  Status status;
  {
    nb::gil_scoped_release release;
    status = runner::FollowSteps(&executor, *group, bounds, followed, control, pages);
  }
  ThrowIfError(std::move(status));
}

// The ranks of the last stage follow rank 0, those of the others what comes from the stage before.
void FollowInStages(NativeExecutor& executor, comm::Group& pipeline, runner::Stage stage) {
  const runner::StepBounds bounds = BoundsOf(executor.program(), executor.options());
  if (pipeline.rank() == 0) {
    runner::StagedExecutor staged(&executor, &pipeline, bounds, std::move(stage));
    FollowSteps(staged, executor.groups().at(comm::Axis::kTensor), bounds, nullptr, nullptr,
                nullptr, nullptr);
    return;
  }
  Status status;
  {
    nb::gil_scoped_release release;
    status = runner::FollowStages(&executor, pipeline, bounds, stage);
  }
  ThrowIfError(std::move(status));
}

// Serves the pages of a rank to rank 0; null if it copies none.
std::unique_ptr<runner::PageServer> ServePages(std::shared_ptr<runner::PageSegment> segment,
                                               const World& world, step::PageStore* pages) {
  if (segment == nullptr || pages == nullptr) return nullptr;
  return ValueOrThrow(runner::PageServer::Start(std::move(segment), world.rank(), pages));
}

void FollowOnCpu(NativeExecutor& executor, const World& world, runner::AdapterStore* adapters,
                 const std::optional<StageParts>& stage,
                 std::shared_ptr<runner::PageSegment> page_segment) {
  device::PinThisThread(RankCpus(world.local()));
  if (comm::Group* pipeline = executor.groups().at(comm::Axis::kPipeline)) {
    if (!stage) ThrowIfError(InvalidArgument("this rank is a stage of a pipeline: it needs one"));
    return FollowInStages(executor, *pipeline, StageOf(executor.program(), *stage));
  }
  runner::ProgramControl control({{"model", &executor}});
  const auto pages = ServePages(std::move(page_segment), world, executor.pages());
  FollowSteps(executor, executor.groups().at(comm::Axis::kTensor),
              BoundsOf(executor.program(), executor.options()), adapters, SetAdapterOf(executor),
              &control, pages.get());
}

// Kernels do the work: the thread is not pinned.
void FollowOnDevice(DeviceExecutorHolder& device, const World& world,
                    runner::AdapterStore* adapters,
                    std::shared_ptr<runner::PageSegment> page_segment) {
  program::DeviceExecutor& executor = *device.executor;
  runner::DeviceControl control({{"model", &executor}});
  const auto pages = ServePages(std::move(page_segment), world, executor.pages());
  FollowSteps(executor, executor.groups().at(comm::Axis::kTensor),
              BoundsOf(executor.program(), device.options), adapters, SetAdapterOf(executor),
              &control, pages.get());
}

// All ranks have come here.
Status Meet(World& world) {
  for (const comm::Axis axis : comm::kAxes) {
    comm::Group* group = world.groups().at(axis);
    float nothing = 0;
    if (group == nullptr) continue;
    PAGEMILL_RETURN_IF_ERROR(group->AllReduce(DType::kF32, &nothing, &nothing, 1));
  }
  return OkStatus();
}

void BindNodesWorld(nb::module_& m) {
  nb::class_<TcpWorld, World>(m, "NodesWorld")
      .def(nb::new_(&JoinNodes), nb::arg("rank"), nb::arg("segment").none(), nb::kw_only(),
           nb::arg("master"), nb::arg("secret"), nb::arg("tensor"), nb::arg("pipeline"),
           nb::arg("num_nodes"), nb::arg("version"), nb::arg("model"), nb::arg("options"),
           nb::arg("number"))
      .def_prop_ro("number", &TcpWorld::number)
      .def_prop_ro("is_done", &TcpWorld::is_done)
      .def("check", [](const TcpWorld& self) { ThrowIfError(self.Check()); })
      .def("note_death", &TcpWorld::NoteDeath);
}

}  // namespace

void BindRanks(nb::module_& m) {
  nb::class_<SharedSegment>(m, "SharedSegment")
      .def(nb::new_([](int32_t tensor, int32_t pipeline) {
             return ValueOrThrow(
                 SharedSegment::Create({.topology = {.pipeline = pipeline, .tensor = tensor}}));
           }),
           nb::arg("tensor"), nb::arg("pipeline") = 1)
      .def_static(
          "open", [](int fd) { return ValueOrThrow(SharedSegment::Open(fd)); }, nb::arg("fd"))
      .def_prop_ro("fd", &SharedSegment::fd);
  nb::class_<runner::PageSegment>(m, "PageSegment")
      .def(nb::new_([](int32_t num_ranks, int64_t page_bytes) {
             return ValueOrThrow(runner::PageSegment::Create(num_ranks, page_bytes));
           }),
           nb::arg("num_ranks"), nb::arg("page_bytes"))
      .def_static(
          "join",
          [](int fd, int32_t rank) {
            auto segment = ValueOrThrow(runner::PageSegment::Open(fd));
            ThrowIfError(segment->Join(rank));
            return segment;
          },
          nb::arg("fd"), nb::arg("rank"))
      .def_prop_ro("fd", &runner::PageSegment::fd);
  nb::class_<World>(m, "World")
      .def(nb::new_(&Join), nb::arg("segment"), nb::arg("rank"), nb::kw_only(),
           nb::arg("spin_us") = 100)
      .def_prop_ro("rank", &World::rank)
      .def_prop_ro("num_ranks", &World::num_ranks)
      .def(
          "wait_for_all",
          [](World& self, double limit_s) {
            Status status;
            {
              nb::gil_scoped_release release;
              status =
                  self.WaitForAll(std::chrono::milliseconds(static_cast<int64_t>(limit_s * 1000)));
            }
            ThrowIfError(std::move(status));
          },
          nb::arg("limit_s"))
      .def("meet",
           [](World& self) {
             Status status;
             {
               nb::gil_scoped_release release;
               status = Meet(self);
             }
             ThrowIfError(std::move(status));
           })
      .def("leave", &World::Leave);
  BindNodesWorld(m);
  nb::class_<StageParts>(m, "Stage")
      .def(
          "__init__",
          [](StageParts* self, std::vector<int32_t> tables, std::vector<std::string> sends) {
            new (self) StageParts{std::move(tables), std::move(sends)};
          },
          nb::arg("tables"), nb::arg("sends"));
  m.def("follow_steps", &FollowOnCpu, nb::arg("executor"), nb::arg("world"),
        nb::arg("adapters").none() = nb::none(), nb::arg("stage").none() = nb::none(),
        nb::arg("page_segment").none() = nb::none());
  m.def("follow_steps", &FollowOnDevice, nb::arg("executor"), nb::arg("world"),
        nb::arg("adapters").none() = nb::none(), nb::arg("page_segment").none() = nb::none());
}

}  // namespace pagemill::bindings
