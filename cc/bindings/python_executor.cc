#include "cc/bindings/python_executor.h"

#include <nanobind/stl/string.h>

#include <exception>
#include <string>
#include <utility>

#include "cc/bindings/batch_arrays.h"
#include "cc/bindings/gil.h"
#include "cc/program/program.h"

namespace pagemill::bindings {

namespace nb = nanobind;

Status PythonExecutor::Enqueue(const ops::StepBatch& batch) {
  Gil gil;
  try {
    return Call(batch);
  } catch (const std::exception& e) {  // nb::python_error too: its text is Python's traceback
    return Internal(std::string("the executor's callable failed: ") + e.what());
  }
}

Status PythonExecutor::Collect(program::ExecutorOutput* output) {
  output->outputs = outputs_;
  output->maxima = {};
  return OkStatus();
}

Status PythonExecutor::Call(const ops::StepBatch& batch) {
  const nb::object result = callable_(BatchToArrays(batch));
  if (!nb::isinstance<nb::dict>(result)) {
    return Internal("the executor's callable must return a dict of arrays");
  }
  kept_.clear();
  names_.clear();
  outputs_.clear();
  for (const auto& [name, value] : nb::cast<nb::dict>(result)) {
    PAGEMILL_RETURN_IF_ERROR(Take(nb::cast<std::string>(name), value, batch));
  }
  return OkStatus();
}

Status PythonExecutor::Take(const std::string& name, nb::handle value,
                            const ops::StepBatch& batch) {
  Array array;
  const bool is_result = name == program::kLogits || name == program::kPooled;
  if (!nb::try_cast(value, array, /*convert=*/false) || array.ndim() < 1 ||
      array.ndim() > TensorView::kMaxRank || (is_result && array.ndim() != 2)) {
    return Internal("the executor's callable must return " + name +
                    " as a C-contiguous float32 array" + (is_result ? " of two dimensions" : ""));
  }
  const int32_t rows = name == program::kLogits ? batch.num_logits_rows : batch.num_requests;
  const bool of_tokens = name == program::kPooled &&
                         array.shape(0) == static_cast<size_t>(batch.num_tokens);
  if (is_result && !of_tokens && array.shape(0) != static_cast<size_t>(rows)) {
    return Internal("the executor's callable returned " + std::to_string(array.shape(0)) +
                    " rows of " + name + " instead of " + std::to_string(rows));
  }
  TensorView view;
  view.data = const_cast<float*>(array.data());
  view.rank = static_cast<int32_t>(array.ndim());
  for (size_t i = 0; i < array.ndim(); ++i) view.shape[i] = static_cast<int64_t>(array.shape(i));
  view.row_stride_bytes = RowBytes(view.dtype, view.RowElements());
  names_.push_back(name);
  outputs_.push_back({names_.back(), view});
  kept_.push_back(std::move(array));
  return OkStatus();
}

}  // namespace pagemill::bindings
