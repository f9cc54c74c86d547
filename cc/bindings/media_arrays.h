// File: cc/bindings/media_arrays.h
// Features and positions of media items, as Python gives them with a request or a chunk of one.
#ifndef PAGEMILL_CC_BINDINGS_MEDIA_ARRAYS_H_
#define PAGEMILL_CC_BINDINGS_MEDIA_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "cc/step/request.h"

namespace pagemill::bindings {

// [rows, channels] of a media item.
using Features =
    nanobind::ndarray<const float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// In a grid, [n, kMediaGridDims]: of the rows and of the tokens of an item, and of the token behind
// it.
using Positions = nanobind::ndarray<const int32_t, nanobind::shape<-1, step::kMediaGridDims>,
                                    nanobind::c_contig, nanobind::device::cpu>;
using ItemPositions = std::tuple<Positions, Positions, int32_t>;

struct MediaArrays {
  const std::vector<Features>& features;
  const std::vector<ItemPositions>& positions;  // empty, or of each item
};

// Copies the arrays into the items. Throws StatusException if their numbers differ.
void SetMediaFeatures(const MediaArrays& arrays, std::vector<step::MediaItem>* media);

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_MEDIA_ARRAYS_H_
