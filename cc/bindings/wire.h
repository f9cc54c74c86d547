// File: cc/bindings/wire.h
// Structs that list their fields (cc/base/field_info.h) as plain Python data: a tuple of the
// schema's number and of the fields' values in the order of Visit(), which msgspec encodes as an
// array. Names do not travel: the number, which follows from them, tells processes of different
// versions from each other.
//
//   wire = msgspec.msgpack.encode(request.to_wire())
//   request = Request.from_wire(msgspec.msgpack.decode(wire))
//
// Outputs, of which there are many, travel as bytes: cc/engine/output_codec.h.
//
// Numbers, flags and texts are themselves; a struct within a struct is a tuple of its fields; an
// absent value is None; an enum is its number; vectors of floats are their bytes, little-endian.
// from_wire() raises TypeError for anything else, for a tuple of another length, and for another
// schema, whose message says what to do.
#ifndef PAGEMILL_CC_BINDINGS_WIRE_H_
#define PAGEMILL_CC_BINDINGS_WIRE_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/base/field_info.h"
#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/step/finish_reason.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"

namespace pagemill::bindings {

static_assert(std::endian::native == std::endian::little, "floats travel as they lie in memory");

template <typename T>
concept HasFields = requires { T::Visit([](auto&&...) {}); };

// How one type travels. The general case: as nanobind converts it.
template <typename T>
struct Wire {
  static nanobind::object To(const T& value) {
    if constexpr (requires { typename T::ValueType; }) {  // a StrongId
      return nanobind::cast(value.value());
    } else {
      return nanobind::cast(value);
    }
  }
  static void From(nanobind::handle wire, T* value) {
    if constexpr (requires { typename T::ValueType; }) {
      *value = T(nanobind::cast<typename T::ValueType>(wire));
    } else {
      *value = nanobind::cast<T>(wire);
    }
  }
};

template <typename T>
nanobind::object ToWire(const T& value) {
  return Wire<T>::To(value);
}

template <HasFields T>
struct Wire<T> {
  static nanobind::object To(const T& value) {
    nanobind::list values;
    T::Visit(
        [&](const char*, auto member, const FieldInfo&) { values.append(ToWire(value.*member)); });
    return nanobind::tuple(values);
  }
  static void From(nanobind::handle wire, T* value) {
    if (!nanobind::isinstance<nanobind::sequence>(wire)) throw nanobind::cast_error();
    const auto values = nanobind::borrow<nanobind::sequence>(wire);
    const size_t size = nanobind::len(values);
    size_t at = 0;
    T::Visit([&](const char* name, auto member, const FieldInfo&) {
      if (at >= size) throw nanobind::type_error("from_wire: there are too few values");
      using Member = std::remove_cvref_t<decltype(value->*member)>;
      const nanobind::object item = values[at++];
      try {
        Wire<Member>::From(item, &(value->*member));
      } catch (const nanobind::cast_error&) {
        throw nanobind::type_error((std::string("from_wire: ") + name + " does not fit").c_str());
      }
    });
    if (at != size) throw nanobind::type_error("from_wire: there are too many values");
  }
};

template <typename T>
struct Wire<std::optional<T>> {
  static nanobind::object To(const std::optional<T>& value) {
    return value ? ToWire(*value) : nanobind::none();
  }
  static void From(nanobind::handle wire, std::optional<T>* value) {
    value->reset();
    if (!wire.is_none()) Wire<T>::From(wire, &value->emplace());
  }
};

template <>
struct Wire<std::optional<step::PoolingParams>> {
  using Pooling = std::optional<step::PoolingParams>;
  static nanobind::object To(const Pooling& value) { return nanobind::cast(value.has_value()); }
  static void From(nanobind::handle wire, Pooling* value) {
    value->reset();
    if (nanobind::cast<bool>(wire)) value->emplace();
  }
};

template <>
struct Wire<step::FinishReason> {
  static nanobind::object To(step::FinishReason reason) {
    return nanobind::cast(static_cast<int32_t>(reason));
  }
  static void From(nanobind::handle wire, step::FinishReason* reason) {
    const auto number = nanobind::cast<int32_t>(wire);
    if (number < 0 || number >= step::kNumFinishReasons) throw nanobind::cast_error();
    *reason = static_cast<step::FinishReason>(number);
  }
};

// None, or (code, message, seconds after which a retry makes sense).
template <>
struct Wire<Status> {
  using Parts = std::tuple<int32_t, std::string, int32_t>;
  static nanobind::object To(const Status& status) {
    if (status.ok()) return nanobind::none();
    return nanobind::cast(
        Parts{static_cast<int32_t>(status.code()), status.message(), status.retry_after_s()});
  }
  static void From(nanobind::handle wire, Status* status) {
    *status = OkStatus();
    if (wire.is_none()) return;
    auto [code, message, retry_after_s] = nanobind::cast<Parts>(wire);
    if (code <= 0 || code > static_cast<int32_t>(StatusCode::kDataLoss)) {
      throw nanobind::cast_error();
    }
    *status = Status(static_cast<StatusCode>(code), std::move(message));
    if (retry_after_s > 0) *status = std::move(*status).WithRetryAfter(retry_after_s);
  }
};

template <>
struct Wire<std::vector<float>> {
  static nanobind::object To(const std::vector<float>& values) {
    return nanobind::bytes(values.data(), values.size() * sizeof(float));
  }
  static void From(nanobind::handle wire, std::vector<float>* values) {
    const auto bytes = nanobind::cast<nanobind::bytes>(wire);
    if (bytes.size() % sizeof(float) != 0) throw nanobind::cast_error();
    values->resize(bytes.size() / sizeof(float));
    if (!values->empty()) std::memcpy(values->data(), bytes.c_str(), bytes.size());
  }
};

// A list of structs without a list of fields: Wire<T>::Take() gives their parts, Make() the struct.
template <typename T, typename Parts>
struct WireList {
  static nanobind::object To(const std::vector<T>& items) {
    std::vector<Parts> parts;
    parts.reserve(items.size());
    for (const T& item : items) parts.push_back(Wire<T>::Take(item));
    return nanobind::cast(parts);
  }
  static void From(nanobind::handle wire, std::vector<T>* items) {
    items->clear();
    for (Parts& parts : nanobind::cast<std::vector<Parts>>(wire)) {
      items->push_back(Wire<T>::Make(std::move(parts)));
    }
  }
};

using LogprobsParts = std::tuple<int32_t, float, int32_t, std::vector<std::pair<int32_t, float>>>;
template <>
struct Wire<step::TokenLogprobs> {
  static LogprobsParts Take(const step::TokenLogprobs& l) {
    return {l.token_id, l.logprob, l.rank, l.top};
  }
  static step::TokenLogprobs Make(LogprobsParts parts) {
    auto& [token_id, logprob, rank, top] = parts;
    return {token_id, logprob, rank, std::move(top)};
  }
};
template <>
struct Wire<std::vector<step::TokenLogprobs>> : WireList<step::TokenLogprobs, LogprobsParts> {};

using MediaParts = std::tuple<std::string, int32_t, int32_t>;
template <>
struct Wire<step::MediaItem> {
  static MediaParts Take(const step::MediaItem& m) {
    return {m.content_id, m.first_token, m.num_tokens};
  }
  static step::MediaItem Make(MediaParts parts) {
    auto& [content_id, first_token, num_tokens] = parts;
    return {std::move(content_id), first_token, num_tokens, /*features=*/nullptr};
  }
};
template <>
struct Wire<std::vector<step::MediaItem>> : WireList<step::MediaItem, MediaParts> {};

// As a vector.
template <typename T>
struct Wire<step::GrowingList<T>> {
  static nanobind::object To(const step::GrowingList<T>& items) { return ToWire(items.ToVector()); }
  static void From(nanobind::handle wire, step::GrowingList<T>* items) {
    std::vector<T> values;
    Wire<std::vector<T>>::From(wire, &values);
    *items = std::move(values);
  }
};

// How values that are no structs with fields travel. To be raised with a change of that.
inline constexpr int32_t kWireFormat = 1;

// The names of the fields, those of structs within included.
template <HasFields T>
std::string FieldNames() {
  std::string names;
  T::Visit([&](const char* name, auto member, const FieldInfo&) {
    names.append(name).append(" ");
    using Member = std::remove_cvref_t<decltype(std::declval<T&>().*member)>;
    if constexpr (HasFields<Member>) names += FieldNames<Member>();
  });
  return names;
}

template <HasFields T>
uint32_t WireSchema() {
  static const uint32_t schema = [] {
    const std::string text = std::to_string(kWireFormat) + " " + FieldNames<T>();
    return static_cast<uint32_t>(Xxh3_128(text.data(), text.size()).low);
  }();
  return schema;
}

// Adds to_wire() and the static from_wire().
template <typename T>
void BindWire(nanobind::class_<T>& bound) {
  bound.def("to_wire",
            [](const T& self) { return nanobind::make_tuple(WireSchema<T>()) + ToWire(self); });
  bound.def_static(
      "from_wire",
      [](nanobind::handle wire) {
        const auto refuse = [](const char* reason) { throw nanobind::type_error(reason); };
        if (!nanobind::isinstance<nanobind::sequence>(wire))
          refuse("from_wire: this is no sequence");
        const auto values = nanobind::borrow<nanobind::sequence>(wire);
        uint32_t schema = 0;
        if (nanobind::len(values) == 0 ||
            !nanobind::try_cast(nanobind::object(values[0]), schema)) {
          refuse("from_wire: this does not begin with the number of a schema");
        }
        if (schema != WireSchema<T>()) {
          refuse(
              "from_wire: the message has other fields than this process knows: it is of another"
              " version of Pagemill; run the same version in all processes");
        }
        T value;
        Wire<T>::From(nanobind::steal(PySequence_GetSlice(wire.ptr(), 1, PY_SSIZE_T_MAX)), &value);
        return value;
      },
      nanobind::arg("wire"));
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_WIRE_H_
