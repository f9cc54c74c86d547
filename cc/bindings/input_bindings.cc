// Inputs of requests: media items with their features, and chunks of appended input. Several
// requests may get the same item; they share its features.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/status_error.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/step/media_item.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using scheduler::InputChunk;
using scheduler::InputPart;
using step::MediaItem;

namespace {

// [rows, channels].
using Features = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// [n, kMediaGridDims].
using Positions =
    nb::ndarray<const int32_t, nb::shape<-1, step::kMediaGridDims>, nb::c_contig, nb::device::cpu>;
// Positions of the rows, of the tokens, and of the token behind the item.
using ItemPositions = std::tuple<Positions, Positions, int32_t>;

// [tokens], or with shares [tokens, n].
using Placement = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;
// [tokens, n].
using Shares = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename Array>
std::vector<std::remove_const_t<typename Array::Scalar>> ToVector(const Array& from) {
  return {from.data(), from.data() + from.size()};
}

std::shared_ptr<const step::MediaFeatures> ToFeatures(const Features& features,
                                                      const std::optional<ItemPositions>& positions,
                                                      int32_t row_tokens,
                                                      const std::optional<Placement>& placement,
                                                      const std::optional<Shares>& shares,
                                                      int32_t encoder) {
  step::MediaFeatures result = {.rows = static_cast<int32_t>(features.shape(0)),
                                .channels = static_cast<int32_t>(features.shape(1)),
                                .values = {features.data(), features.data() + features.size()},
                                .row_tokens = row_tokens,
                                .encoder = encoder};
  if (positions) {
    const auto& [rows, tokens, next] = *positions;
    result.row_positions = ToVector(rows);
    result.token_positions = ToVector(tokens);
    result.next_position = next;
  }
  if (placement) result.placement = ToVector(*placement);
  if (shares) result.shares = ToVector(*shares);
  return std::make_shared<step::MediaFeatures>(std::move(result));
}

InputPart ToInputPart(std::string_view name) {
  if (name == "more") return InputPart::kMore;
  if (name == "turn") return InputPart::kTurn;
  if (name == "last") return InputPart::kLast;
  ThrowIfError(
      InvalidArgument("part is '" + std::string(name) + "', it must be one of more, turn, last"));
  return {};
}

}  // namespace

void BindInputs(nb::module_& m) {
  nb::class_<MediaItem>(m, "MediaItem")
      .def(
          "__init__",
          [](MediaItem* self, std::string content_id, int32_t first_token, int32_t num_tokens,
             const std::optional<Features>& features, const std::optional<ItemPositions>& positions,
             int32_t row_tokens, const std::optional<Placement>& placement,
             const std::optional<Shares>& shares, int32_t encoder) {
            new (self) MediaItem{
                std::move(content_id), first_token, num_tokens,
                features ? ToFeatures(*features, positions, row_tokens, placement, shares, encoder)
                         : nullptr};
          },
          nb::arg("content_id"), nb::arg("first_token"), nb::arg("num_tokens"),
          nb::arg("features") = nb::none(), nb::arg("positions") = nb::none(),
          nb::arg("row_tokens") = 0, nb::arg("placement") = nb::none(),
          nb::arg("shares") = nb::none(), nb::arg("encoder") = 0);
  nb::class_<InputChunk>(m, "InputChunk")
      .def(
          "__init__",
          [](InputChunk* self, std::vector<int32_t> token_ids, std::string_view part,
             std::vector<MediaItem> media) {
            new (self) InputChunk{std::move(token_ids), std::move(media), ToInputPart(part)};
          },
          nb::arg("token_ids"), nb::kw_only(), nb::arg("part") = "last",
          nb::arg("media") = nb::make_tuple());
}

}  // namespace pagemill::bindings
