// File: cc/bindings/python_executor.h
// An executor whose step is a Python callable: the torch executor, or a test's own. Takes the GIL
// only inside Enqueue(), which runs the step; an exception of the callable becomes a failed step
// that carries its message.
#ifndef PAGEMILL_CC_BINDINGS_PYTHON_EXECUTOR_H_
#define PAGEMILL_CC_BINDINGS_PYTHON_EXECUTOR_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <list>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/program/executor.h"

namespace pagemill::bindings {

// callable(arrays: dict) -> outputs: dict of float32 arrays by the names of the program's outputs,
// C-contiguous in host memory; kept until the next step.
class PythonExecutor final : public program::Executor {
 public:
  explicit PythonExecutor(nanobind::callable callable) : callable_(std::move(callable)) {}

  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(program::ExecutorOutput* output) override;

  // For sampling: one thread, since the callable's library has threads of its own.
  device::ThreadPool* thread_pool() { return &pool_; }

  // For the garbage collector (collectable.h). A step after Forget() fails.
  int Visit(visitproc visit, void* arg) {
    Py_VISIT(callable_.ptr());
    return 0;
  }
  void Forget() { callable_ = nanobind::none(); }

 private:
  using Array = nanobind::ndarray<const float, nanobind::c_contig, nanobind::device::cpu>;
  Status Call(const ops::StepBatch& batch);
  Status Take(const std::string& name, nanobind::handle value, const ops::StepBatch& batch);

  nanobind::object callable_;
  device::ThreadPool pool_{{.num_threads = 1}};
  std::vector<Array> kept_;
  std::list<std::string> names_;
  std::vector<program::OutputView> outputs_;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_PYTHON_EXECUTOR_H_
