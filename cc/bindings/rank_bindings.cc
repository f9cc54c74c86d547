// Ranks of a tensor-parallel group: joining it, and following rank 0.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <memory>
#include <utility>

#include "cc/bindings/bindings.h"
#include "cc/bindings/rank_cpus.h"
#include "cc/bindings/status_error.h"
#include "cc/comm/communicator.h"
#include "cc/program/native_executor.h"
#include "cc/runner/rank_steps.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using comm::Communicator;
using comm::SharedSegment;
using program::NativeExecutor;

namespace {

std::shared_ptr<Communicator> Join(std::shared_ptr<SharedSegment> segment, int32_t rank,
                                   int32_t spin_us) {
  return ValueOrThrow(Communicator::Join(std::move(segment), rank, {.spin_us = spin_us}));
}

void FollowSteps(NativeExecutor& executor, Communicator& group) {
  Status status;
  {
    nb::gil_scoped_release release;
    device::PinThisThread(RankCpus(group));
    status = runner::FollowSteps(&executor, group, BoundsOf(executor.options()));
  }
  ThrowIfError(std::move(status));
}

}  // namespace

void BindRanks(nb::module_& m) {
  nb::class_<SharedSegment>(m, "SharedSegment")
      .def(nb::new_([](int32_t num_ranks) {
             return ValueOrThrow(SharedSegment::Create({.num_ranks = num_ranks}));
           }),
           nb::arg("num_ranks"))
      .def_static(
          "open", [](int fd) { return ValueOrThrow(SharedSegment::Open(fd)); }, nb::arg("fd"))
      .def_prop_ro("fd", &SharedSegment::fd);
  nb::class_<Communicator>(m, "Communicator")
      .def(nb::new_(&Join), nb::arg("segment"), nb::arg("rank"), nb::kw_only(),
           nb::arg("spin_us") = 100)
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("num_ranks", &Communicator::num_ranks)
      .def(
          "wait_for_all",
          [](Communicator& self, double limit_s) {
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
           [](Communicator& self) {
             float nothing = 0;
             Status status;
             {
               nb::gil_scoped_release release;
               status = self.AllReduce({&nothing, 1}, {&nothing, 1});
             }
             ThrowIfError(std::move(status));
           })
      .def("leave", &Communicator::Leave);
  m.def("follow_steps", &FollowSteps, nb::arg("executor"), nb::arg("group"));
}

}  // namespace pagemill::bindings
