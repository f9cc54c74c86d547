// File: cc/bindings/media_bindings.h
// Encoders of media, as Python gives them to a runner.
#ifndef PAGEMILL_CC_BINDINGS_MEDIA_BINDINGS_H_
#define PAGEMILL_CC_BINDINGS_MEDIA_BINDINGS_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/runner/media/media_embeddings.h"
#include "cc/runner/media/media_encoder.h"
#include "cc/tensor/dtype.h"

namespace pagemill::bindings {

// An executor, and what the runner needs to know of its program.
using Encoder = std::pair<nanobind::object, runner::MediaEncoderOptions>;

// Null without encoders. `type` is that of the activations of the runner's model. Raises for
// options that make no sense.
std::unique_ptr<runner::MediaEmbeddings> MakeMedia(const std::vector<Encoder>& encoders,
                                                   runner::MediaEmbeddingsOptions options,
                                                   DType type);

// The name of an encoder's program among those of a runner.
std::string EncoderName(size_t number);

void BindMediaEncoderOptions(nanobind::module_& m);

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_MEDIA_BINDINGS_H_
