#include "cc/bindings/python_executor.h"

#include <exception>
#include <string>

#include "cc/bindings/batch_arrays.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

// A rank-0 view for None.
template <typename Rows>
Status TakeRows(nb::handle value, const char* name, int32_t rows, Rows* kept, TensorView* view) {
  *view = TensorView{};
  *kept = Rows();
  if (value.is_none()) return OkStatus();
  if (!nb::try_cast(value, *kept, /*convert=*/false)) {
    return Internal(std::string("the executor's callable must return ") + name +
                    " as a C-contiguous float32 array of two dimensions, or None");
  }
  if (kept->shape(0) != static_cast<size_t>(rows)) {
    return Internal(std::string("the executor's callable returned ") +
                    std::to_string(kept->shape(0)) + " rows of " + name + " instead of " +
                    std::to_string(rows));
  }
  *view = TensorView::Dense(const_cast<float*>(kept->data()), DType::kF32,
                            {rows, static_cast<int64_t>(kept->shape(1))});
  return OkStatus();
}

}  // namespace

Status PythonExecutor::Execute(const ops::BatchView& batch, program::ExecutorOutput* output) {
  nb::gil_scoped_acquire gil;
  try {
    return Call(batch, output);
  } catch (const std::exception& e) {  // nb::python_error too: its text is Python's traceback
    return Internal(std::string("the executor's callable failed: ") + e.what());
  }
}

Status PythonExecutor::Call(const ops::BatchView& batch, program::ExecutorOutput* output) {
  const nb::object result = callable_(BatchToArrays(batch));
  if (!nb::isinstance<nb::tuple>(result) || nb::len(result) != 2) {
    return Internal("the executor's callable must return a tuple (logits, pooled)");
  }
  PM_RETURN_IF_ERROR(
      TakeRows(result[0], "logits", batch.num_logits_rows, &logits_, &output->logits));
  return TakeRows(result[1], "pooled", batch.num_requests, &pooled_, &output->pooled);
}

}  // namespace pagemill::bindings
