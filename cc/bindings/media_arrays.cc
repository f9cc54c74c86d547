#include "cc/bindings/media_arrays.h"

#include <memory>
#include <string>
#include <utility>

#include "cc/bindings/status_error.h"

namespace pagemill::bindings {
namespace {

std::vector<int32_t> ToVector(const Positions& from) {
  return {from.data(), from.data() + from.size()};
}

}  // namespace

void SetMediaFeatures(const MediaArrays& arrays, std::vector<step::MediaItem>* media) {
  const std::vector<Features>& features = arrays.features;
  if (features.size() != media->size()) {
    ThrowIfError(InvalidArgument("the request has " + std::to_string(media->size()) +
                                 " media items, but features of " +
                                 std::to_string(features.size())));
  }
  if (!arrays.positions.empty() && arrays.positions.size() != features.size()) {
    ThrowIfError(InvalidArgument("the request has features of " + std::to_string(features.size()) +
                                 " media items, but positions of " +
                                 std::to_string(arrays.positions.size())));
  }
  for (size_t i = 0; i < features.size(); ++i) {
    step::MediaFeatures made = {
        .rows = static_cast<int32_t>(features[i].shape(0)),
        .channels = static_cast<int32_t>(features[i].shape(1)),
        .values = {features[i].data(), features[i].data() + features[i].size()}};
    if (!arrays.positions.empty()) {
      const auto& [rows, tokens, next] = arrays.positions[i];
      made.row_positions = ToVector(rows);
      made.token_positions = ToVector(tokens);
      made.next_position = next;
    }
    (*media)[i].features = std::make_shared<step::MediaFeatures>(std::move(made));
  }
}

}  // namespace pagemill::bindings
