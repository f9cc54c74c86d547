#include "cc/bindings/media_bindings.h"

#include <cstdint>

#include "cc/bindings/device_executor_holder.h"
#include "cc/bindings/python_executor.h"
#include "cc/bindings/status_error.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/native_executor.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using program::NativeExecutor;

namespace {

std::unique_ptr<runner::MediaEncoder> MakeEncoder(const Encoder& encoder) {
  const nb::object& executor = encoder.first;
  runner::MediaEncoderOptions options = encoder.second;
  program::Executor* runs = nullptr;
  if (nb::isinstance<NativeExecutor>(executor)) {
    NativeExecutor& native = nb::cast<NativeExecutor&>(executor);
    options.features_type = native.options().activation_type;
    options.adapters = !program::AdapterValues(native.program()).empty();
    runs = &native;
  } else if (nb::isinstance<DeviceExecutorHolder>(executor)) {
    DeviceExecutorHolder& device = nb::cast<DeviceExecutorHolder&>(executor);
    options.features_type = device.options.activation_type;
    options.adapters = !program::AdapterValues(device.executor->program()).empty();
    runs = device.executor.get();
  } else {
    runs = &nb::cast<PythonExecutor&>(executor);
  }
  return ValueOrThrow(runner::MediaEncoder::Create(runs, options));
}

}  // namespace

std::unique_ptr<runner::MediaEmbeddings> MakeMedia(const std::vector<Encoder>& encoders,
                                                   runner::MediaEmbeddingsOptions options,
                                                   DType type) {
  if (encoders.empty()) return nullptr;
  options.type = type;
  std::vector<std::unique_ptr<runner::MediaEncoder>> made;
  for (const Encoder& encoder : encoders) made.push_back(MakeEncoder(encoder));
  return ValueOrThrow(runner::MediaEmbeddings::Create(std::move(made), options));
}

std::string EncoderName(size_t number) { return "encoder." + std::to_string(number); }

void BindMediaEncoderOptions(nb::module_& m) {
  using runner::MediaEncoderOptions;
  nb::class_<MediaEncoderOptions>(m, "MediaEncoderOptions")
      .def(
          "__init__",
          [](MediaEncoderOptions* self, int32_t rows, int32_t channels, int32_t tokens,
             int32_t class_tokens, int32_t width, int32_t max_items, int32_t max_step_tokens,
             bool any_size, bool grid, bool placed, int32_t tile_rows, int32_t vocab_size) {
            new (self) MediaEncoderOptions{.format = {.rows = rows,
                                                      .channels = channels,
                                                      .tokens = tokens,
                                                      .any_size = any_size,
                                                      .grid = grid,
                                                      .placed = placed,
                                                      .vocab_size = vocab_size},
                                           .class_tokens = class_tokens,
                                           .width = width,
                                           .max_items = max_items,
                                           .max_step_tokens = max_step_tokens,
                                           .tile_rows = tile_rows};
          },
          nb::kw_only(), nb::arg("rows"), nb::arg("channels"), nb::arg("tokens"),
          nb::arg("class_tokens") = 0, nb::arg("width"), nb::arg("max_items") = 1,
          nb::arg("max_step_tokens") = 0, nb::arg("any_size") = false, nb::arg("grid") = false,
          nb::arg("placed") = false, nb::arg("tile_rows") = 0, nb::arg("vocab_size") = 0);
}

}  // namespace pagemill::bindings
