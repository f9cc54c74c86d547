// File: cc/bindings/fields.h
// Python's view of a struct that lists its fields (cc/base/field_info.h): a read-only property
// each, values from keyword arguments, and a table that says what the fields are.
#ifndef PAGEMILL_CC_BINDINGS_FIELDS_H_
#define PAGEMILL_CC_BINDINGS_FIELDS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/base/field_info.h"
#include "cc/base/status.h"
#include "cc/bindings/wire.h"
#include "cc/step/finish_reason.h"
#include "cc/step/growing_list.h"
#include "cc/step/media_item.h"

namespace pagemill::bindings {

// Named types by overload, everything else as nanobind converts it.
template <typename T>
nanobind::object ToPython(const T& value) {
  if constexpr (requires { typename T::ValueType; }) {  // a StrongId
    return nanobind::cast(value.value());
  } else {
    return nanobind::cast(value);
  }
}
inline nanobind::object ToPython(step::FinishReason reason) {
  const std::string_view name = step::FinishReasonName(reason);
  return nanobind::str(name.data(), name.size());
}
// A numpy array that owns its copy.
template <typename T>
nanobind::object ToArray(const std::vector<T>& values) {
  auto copy = std::make_unique<std::vector<T>>(values);
  std::vector<T>* data = copy.release();
  nanobind::capsule owner(data, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(data->data(), {data->size()}, owner));
}
inline nanobind::object ToPython(const std::vector<float>& values) { return ToArray(values); }
inline nanobind::object ToPython(const std::vector<uint16_t>& values) { return ToArray(values); }
template <typename T>
nanobind::object ToPython(const std::optional<T>& value) {
  return value ? ToPython(*value) : nanobind::none();
}

// As it travels (wire.h), except that a struct with a list of fields is an object.
template <typename T>
void FromPython(nanobind::handle object, T* value) {
  if constexpr (HasFields<T>) {
    *value = nanobind::cast<T>(object);
  } else {
    Wire<T>::From(object, value);
  }
}

// An int32 array is copied at once.
inline void FromPython(nanobind::handle object, step::GrowingList<int32_t>* value) {
  nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>
      array;
  if (nanobind::try_cast(object, array, /*convert=*/false)) {
    *value = std::vector<int32_t>(array.data(), array.data() + array.size());
  } else {
    *value = nanobind::cast<std::vector<int32_t>>(object);
  }
}
// Objects, which have features; media items travel without them.
inline void FromPython(nanobind::handle object, step::GrowingList<step::MediaItem>* value) {
  *value = nanobind::cast<std::vector<step::MediaItem>>(object);
}

// Sets the fields of `to` that `values` names.
// Raises TypeError for a name that is no field, and for a value of another type.
template <typename T>
void SetFields(const nanobind::dict& values, T* to) {
  size_t num_set = 0;
  T::Visit([&](const char* name, auto member, const FieldInfo&) {
    if (!values.contains(name)) return;
    ++num_set;
    try {
      FromPython(values[name], &(to->*member));
    } catch (const nanobind::cast_error&) {
      throw nanobind::type_error((std::string(name) + " has the wrong type or size").c_str());
    }
  });
  if (num_set == values.size()) return;
  std::string names;
  T::Visit([&](const char* name, auto, const FieldInfo&) { names += std::string(" ") + name; });
  throw nanobind::type_error(("there is a keyword that is none of:" + names).c_str());
}

// Adds a property for each field. A Status becomes three: `error_code` and `error_message`, which
// are None if it is OK, and `error_retry_after_s`.
template <typename T>
void BindFields(nanobind::class_<T>& bound) {
  T::Visit([&](const char* name, auto member, const FieldInfo& info) {
    using Member = std::remove_cvref_t<decltype(std::declval<T>().*member)>;
    if constexpr (std::same_as<Member, Status>) {
      const auto text = [](const Status& status, std::string_view words) -> nanobind::object {
        if (status.ok()) return nanobind::none();
        return nanobind::str(words.data(), words.size());
      };
      const std::string prefix(name);
      bound.def_prop_ro((prefix + "_code").c_str(), [member, text](const T& self) {
        return text(self.*member, StatusCodeName((self.*member).code()));
      });
      bound.def_prop_ro((prefix + "_message").c_str(), [member, text](const T& self) {
        return text(self.*member, (self.*member).message());
      });
      bound.def_prop_ro((prefix + "_retry_after_s").c_str(),
                        [member](const T& self) { return (self.*member).retry_after_s(); });
    } else {
      bound.def_prop_ro(
          name, [member](const T& self) { return ToPython(self.*member); }, info.help);
    }
  });
}

// The table of `T`'s fields: (name, "value", "gauge", "counter", "histogram" or "counters", metric,
// help) each.
template <typename T>
nanobind::tuple FieldTable() {
  constexpr const char* kKinds[] = {"value", "gauge", "counter", "histogram", "counters"};
  nanobind::list rows;
  T::Visit([&](const char* name, auto, const FieldInfo& info) {
    rows.append(
        nanobind::make_tuple(name, kKinds[static_cast<int>(info.kind)], info.metric, info.help));
  });
  return nanobind::tuple(rows);
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_FIELDS_H_
