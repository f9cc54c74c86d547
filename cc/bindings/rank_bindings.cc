// Ranks of a tensor-parallel group: joining it, and following rank 0.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "cc/bindings/bindings.h"
#include "cc/bindings/device_executor_holder.h"
#include "cc/bindings/rank_cpus.h"
#include "cc/bindings/status_error.h"
#include "cc/comm/shared_memory_world.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/executor.h"
#include "cc/program/native_executor.h"
#include "cc/runner/adapters/adapter_store.h"
#include "cc/runner/ranks/rank_steps.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using comm::SharedMemoryWorld;
using comm::SharedSegment;
using program::NativeExecutor;

namespace {

using SetAdapter =
    std::function<Status(int32_t slot, std::shared_ptr<const program::AdapterWeights> weights)>;

std::shared_ptr<SharedMemoryWorld> Join(std::shared_ptr<SharedSegment> segment, int32_t rank,
                                        int32_t spin_us) {
  return ValueOrThrow(SharedMemoryWorld::Join(std::move(segment), rank, {.spin_us = spin_us}));
}

// `adapters` is null if the program has none.
void FollowSteps(program::Executor& executor, comm::Group* group, const runner::StepBounds& bounds,
                 runner::AdapterStore* adapters, SetAdapter set) {
  if (group == nullptr) ThrowIfError(InvalidArgument("this rank is alone: no rank leads it"));
  runner::FollowedAdapters followed;
  if (adapters != nullptr) {
    followed.set = [set = std::move(set), adapters](int32_t slot, step::AdapterId id) {
      if (id == step::kNoAdapter) return set(slot, nullptr);
      auto weights = adapters->Find(id);
      if (weights == nullptr) return Internal("an adapter of rank 0 is not on this rank");
      return set(slot, std::move(weights));
    };
    followed.forget = [adapters](step::AdapterId id) { adapters->Remove(id); };
  }
  Status status;
  {
    nb::gil_scoped_release release;
    status = runner::FollowSteps(&executor, *group, bounds, followed);
  }
  ThrowIfError(std::move(status));
}

void FollowOnCpu(NativeExecutor& executor, const SharedMemoryWorld& world,
                 runner::AdapterStore* adapters) {
  device::PinThisThread(RankCpus(world.rank(), world.num_ranks()));
  FollowSteps(executor, executor.groups().at(comm::Axis::kTensor),
              BoundsOf(executor.program(), executor.options()), adapters,
              [&executor](int32_t slot, std::shared_ptr<const program::AdapterWeights> weights) {
                return executor.SetAdapter(slot, std::move(weights));
              });
}

// Kernels do the work: the thread is not pinned.
void FollowOnDevice(DeviceExecutorHolder& device, const SharedMemoryWorld&,
                    runner::AdapterStore* adapters) {
  program::DeviceExecutor& executor = *device.executor;
  FollowSteps(
      executor, executor.groups().at(comm::Axis::kTensor),
      BoundsOf(executor.program(), device.options), adapters,
      [&executor](int32_t slot, const std::shared_ptr<const program::AdapterWeights>& weights) {
        return executor.SetAdapter(slot, weights.get());
      });
}

// All ranks have come here.
Status Meet(SharedMemoryWorld& world) {
  for (const comm::Axis axis : comm::kAxes) {
    comm::Group* group = world.groups().at(axis);
    float nothing = 0;
    if (group == nullptr) continue;
    PAGEMILL_RETURN_IF_ERROR(group->AllReduce(DType::kF32, &nothing, &nothing, 1));
  }
  return OkStatus();
}

}  // namespace

void BindRanks(nb::module_& m) {
  nb::class_<SharedSegment>(m, "SharedSegment")
      .def(nb::new_([](int32_t tensor) {
             return ValueOrThrow(SharedSegment::Create({.topology = {.tensor = tensor}}));
           }),
           nb::arg("tensor"))
      .def_static(
          "open", [](int fd) { return ValueOrThrow(SharedSegment::Open(fd)); }, nb::arg("fd"))
      .def_prop_ro("fd", &SharedSegment::fd);
  nb::class_<SharedMemoryWorld>(m, "World")
      .def(nb::new_(&Join), nb::arg("segment"), nb::arg("rank"), nb::kw_only(),
           nb::arg("spin_us") = 100)
      .def_prop_ro("rank", &SharedMemoryWorld::rank)
      .def_prop_ro("num_ranks", &SharedMemoryWorld::num_ranks)
      .def(
          "wait_for_all",
          [](SharedMemoryWorld& self, double limit_s) {
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
           [](SharedMemoryWorld& self) {
             Status status;
             {
               nb::gil_scoped_release release;
               status = Meet(self);
             }
             ThrowIfError(std::move(status));
           })
      .def("leave", &SharedMemoryWorld::Leave);
  m.def("follow_steps", &FollowOnCpu, nb::arg("executor"), nb::arg("world"),
        nb::arg("adapters").none() = nb::none());
  m.def("follow_steps", &FollowOnDevice, nb::arg("executor"), nb::arg("world"),
        nb::arg("adapters").none() = nb::none());
}

}  // namespace pagemill::bindings
